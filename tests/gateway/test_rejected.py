"""What is told to callers that are refused, and what of them is recorded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from strom.core.access import KeySettings, PolicySettings
from strom.core.record import CallRecord
from strom.gateway.gateway import State
from strom.gateway.routing import Router
from strom.policies.auth import KeyRing
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryExchange
from strom.transport.types import Refusal
from tests.gateway.places import Field, model, provider
from tests.gateway.rig import PATHS

SENT = [(b"x-api-key", b"k")]


def key(**more: object) -> KeySettings:
    return msgspec.structs.replace(KeySettings("ci", hashlib.sha256(b"k").hexdigest()), **more)


def told(field: Field, **body: Any) -> tuple[dict[str, str], CallRecord]:
    exchange = field.call(headers=SENT, **body)
    error: dict[str, str] = json.loads(exchange.body_out)["error"]
    return error, field.records.all[-1]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"expires_at": 1.0}, "api_key_expired"),
        ({"disabled": True}, "api_key_disabled"),
        ({"routes": ("/v1/messages",)}, "permission_denied"),
    ],
)
def test_the_record_names_the_key_that_was_refused(settings: dict[str, object], code: str) -> None:
    error, record = told(Field([model("a")], keys=(key(**settings),)))
    assert error["code"] == code
    assert (record.status, record.key_name, record.error and record.error.code) == ("rejected", "ci", code)


def test_the_record_of_a_guess_names_no_key() -> None:
    field = Field([model("a")], keys=(key(),))
    field.call(headers=[(b"x-api-key", b"wrong")])
    assert field.records.all[-1].key_name is None


def test_the_hint_names_only_what_the_key_may_ask_for() -> None:
    models = [model("a"), model("b", name="secret-project")]
    assert "Served: m." in told(Field(models, keys=(key(models=("m",)),)), model="x")[0]["message"]
    assert "secret-project" in told(Field(models, keys=(key(),)), model="x")[0]["message"]
    nothing = told(Field(models, keys=(key(models=("y",)),)), model="x")[0]["message"]
    assert nothing == "The model 'x' is not served here."


def test_a_key_whose_policy_was_taken_out_of_the_file_may_do_nothing() -> None:
    """Managed keys outlive the policies that they name. That is no mistake of the caller's request."""
    field = Field([model("a")], keys=(key(policy="gone"),))
    for headers in (SENT, [*SENT, (b"x-strom-policy", b"gone")]):
        field.call(headers=headers)
        record = field.records.all[-1]
        assert record.status == "rejected"
        assert record.error is not None
        assert "gone" in record.error.message
    assert field.records.all[0].http_status == 403
    assert field.asked == []


def test_an_unknown_policy_has_a_code_of_its_own() -> None:
    field = Field([model("a")], policies=(PolicySettings("eu"),), keys=(key(),))
    field.call(headers=[*SENT, (b"x-strom-policy", b"EU")])
    record = field.records.all[-1]
    assert record.http_status == 400
    assert record.error is not None
    assert record.error.code == "policy_not_found"


def test_calls_under_way_keep_their_policy_over_a_reload_and_new_ones_have_the_new_one() -> None:
    """A call that fails over after a reload goes by what it was admitted with: it was never promised less."""
    places = [provider("a", region="eu-de"), provider("b", region="us-1")]
    eu, us = PolicySettings("p", regions=("eu-*",)), PolicySettings("p", regions=("us-*",))
    field = Field([model("a", "b")], places, (eu,), (key(policy="p"),))
    field.call(headers=SENT)
    router = Router(list(field.router.upstreams.values()), [model("a", "b")], (us,))
    field.gateway.state = State(router, KeyRing((key(policy="p"),), required=True))
    field.refuse(503)
    assert field.asked == ["a"]
    field.call(headers=SENT)
    assert field.asked == ["a", "b"]


def test_the_record_of_a_body_too_large_names_its_key() -> None:
    field = Field([model("a")], keys=(key(),))
    for headers in (SENT, [(b"x-api-key", b"wrong")]):
        exchange = MemoryExchange("POST", PATHS["openai-chat"], headers=headers)
        exchange.refusal = Refusal(413, "body_too_large", "")
        field.gateway.handle_call(exchange, CODECS["openai-chat"])
        assert exchange.status == 413
    assert [record.key_name for record in field.records.all] == ["ci", None]
