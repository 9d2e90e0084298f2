"""Calls on their way: retries, larger contexts, other models, pins, affinity, trials, records of all that."""

from __future__ import annotations

import hashlib
import json

import pytest

from strom.core.access import KeySettings, PolicySettings
from strom.gateway.services import CallSettings
from strom.transport.types import TransportFailure
from tests.gateway.places import Field, model, provider
from tests.gateway.rig import PATHS

CONNECT = TransportFailure("connect", "refused", sent=False)
TOO_LONG = json.dumps(
    {"error": {"message": "maximum context length is 50 tokens", "type": "invalid_request_error",
               "code": "context_length_exceeded", "param": "messages"}}
).encode()  # fmt: skip


def pin(name: str, key: str = "") -> list[tuple[bytes, bytes]]:
    headers = [(b"x-strom-endpoint", name.encode())]
    return [*headers, (b"authorization", b"Bearer " + key.encode())] if key else headers


def key(name: str, **more: object) -> KeySettings:
    return KeySettings(name, hashlib.sha256(name.encode()).hexdigest(), **more)  # type: ignore[arg-type]


# -- retries --


def test_the_same_endpoint_is_asked_again_after_a_rest() -> None:
    field = Field([model("a", retries=1)])
    exchange = field.call()
    first = field.last.request
    field.refuse(503)
    assert field.asked == ["a"]
    field.clock.advance(1)
    assert field.asked == ["a", "a"]
    assert field.last.request.body == first.body
    field.answer()
    assert b"hello" in exchange.body_out
    (record,) = field.records.all
    assert [(each.outcome, each.reason) for each in record.attempts] == [("refused", "overloaded"), ("ok", None)]


def test_no_retry_unless_the_model_says_so_and_none_for_a_mistake() -> None:
    field = Field([model("a")])
    once = field.call()
    field.refuse(503)
    assert once.status == 503
    field = Field([model("a", retries=5)])
    mistaken = field.call()
    field.refuse(400)
    assert mistaken.status == 400
    field.clock.advance(60)
    assert field.asked == ["a"]


def test_retry_after_is_waited_for() -> None:
    field = Field([model("a", retries=1)])
    field.call()
    field.refuse(429, headers=[(b"retry-after", b"20")])
    field.clock.advance(19)
    assert len(field.client.sent) == 1
    field.clock.advance(4)  # and up to a tenth more
    assert len(field.client.sent) == 2


@pytest.mark.parametrize("front", sorted(PATHS))
def test_a_resting_call_beats_and_can_be_left(front: str) -> None:
    field = Field([model("a", retries=1)], settings=CallSettings(heartbeat_s=5))
    exchange = field.call(front)
    field.refuse(503, headers=[(b"retry-after", b"30")])
    field.clock.advance(6)
    assert exchange.state == "started"
    assert exchange.body_out
    exchange.disconnect()
    field.clock.advance(60)
    assert len(field.client.sent) == 1
    assert field.records.all[0].status == "cancelled"
    assert field.board.in_flight(field.router.endpoints()[0][1]) == 0


# -- contexts --


def test_a_long_prompt_goes_where_it_fits() -> None:
    field = Field([model("a", "b", a={"context_window": 50}, b={"context_window": 5000})])
    field.call()
    field.call(messages=[{"role": "user", "content": "long " * 200}])
    assert field.asked == ["a", "b"]


def test_the_upstreams_word_on_its_context_leads_to_a_larger_one_only() -> None:
    sizes = {"a": {"context_window": 50}, "b": {"context_window": 50}, "c": {"context_window": 5000}}
    field = Field([model("a", "b", "c", **sizes)])
    exchange = field.call()
    field.refuse(400, TOO_LONG)
    assert field.asked == ["a", "c"]
    field.answer()
    assert b"hello" in exchange.body_out


def test_without_a_larger_one_the_refusal_goes_through() -> None:
    field = Field([model("a", "b", a={"context_window": 5000})])
    exchange = field.call()
    field.refuse(400, TOO_LONG)
    assert field.asked == ["a"]
    assert exchange.status == 400
    assert json.loads(exchange.body_out)["error"]["code"] == "context_length_exceeded"


# -- other models --


def test_fallback_models_come_after_the_models_own() -> None:
    field = Field([model("a", fallback_models=("n",)), model("b", name="n")])
    exchange = field.call()
    field.last.fail(CONNECT)
    assert field.asked == ["a", "b"]
    field.answer()
    assert b"hello" in exchange.body_out


def test_policies_and_scopes_bind_fallback_models() -> None:
    eu = PolicySettings("eu", regions=("eu-*",))
    models = [model("a", fallback_models=("n", "o")), model("b", name="n"), model("c", name="o")]
    providers = [provider("a", region="eu-de"), provider("b", region="us-east"), provider("c", region="eu-fr")]
    bound = Field(models, providers, (eu,))
    bound.call(headers=[(b"x-strom-policy", b"eu")])
    bound.last.fail(CONNECT)
    assert bound.asked == ["a", "c"]
    scoped = Field(models, providers, keys=(key("k", models=("m", "n")),))
    scoped.call(headers=[(b"x-api-key", b"k")])
    scoped.last.fail(CONNECT)
    scoped.last.fail(CONNECT)
    assert scoped.asked == ["a", "b"]


# -- pins --


def test_a_pin_goes_to_one_endpoint_and_nowhere_else() -> None:
    field = Field([model("a", "b", "c")])
    exchange = field.call(headers=pin("e-b"))
    assert field.asked == ["b"]
    field.refuse(503)
    assert field.asked == ["b"]
    assert exchange.status == 503


@pytest.mark.parametrize(("name", "status"), [("plain", 403), ("admin", 200), ("pinner", 200)])
def test_who_may_pin(name: str, status: int) -> None:
    keys = (key("plain"), key("admin", admin=True), key("pinner", may_pin_endpoint=True))
    field = Field([model("a", "b")], keys=keys)
    exchange = field.call(headers=pin("e-b", name))
    if status == 200:
        field.answer()
        assert field.asked == ["b"]
    else:
        assert not field.client.sent
    assert exchange.status == status


def test_pins_that_lead_nowhere() -> None:
    eu = PolicySettings("eu", providers=("a",))
    field = Field([model("a", "b"), model("c", name="n")], policies=(eu,))
    for headers, status in (
        (pin("nowhere"), 404),
        (pin("e-c"), 404),
        ([*pin("e-b"), (b"x-strom-policy", b"eu")], 403),
        ([*pin("e-a"), *pin("e-b")], 400),
    ):
        assert field.call(headers=headers).status == status
    assert not field.client.sent
    assert field.records.all[2].policy_id == "eu"


# -- affinity and health --


def test_a_conversation_stays_with_its_endpoint_while_it_is_healthy() -> None:
    field = Field([model("a", "b", "c", order=1, affinity="conversation")])
    turns = [{"role": "user", "content": "Tell me of rivers."}]
    for _ in range(3):
        field.call(messages=turns)
        field.answer()
        turns += [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "Go on."}]
    assert len(set(field.asked)) == 1
    home = field.asked[0]
    field.call(messages=turns)
    field.refuse(401)
    field.call(messages=turns)
    assert field.asked[-1] != home


def test_an_endpoint_that_refuses_us_is_left_and_tried_again() -> None:
    field = Field([model("a", "b")])
    first = field.call()
    field.refuse(401)
    assert first.status == 502
    field.call()
    field.answer()
    field.clock.advance(6)
    field.call()
    field.call()
    assert field.asked == ["a", "b", "a", "b"], "one trial"
    field.answer(2)
    field.call()
    assert field.asked[-1] == "a"


def test_clients_mistakes_eject_nobody() -> None:
    field = Field([model("a", "b")])
    for _ in range(30):
        field.call()
        field.refuse(400)
    for _ in range(30):
        field.call().disconnect()
    assert set(field.asked) == {"a"}
    assert field.board.condition(field.router.endpoints()[0][1]).circuit == "closed"


def test_every_attempt_names_its_place_and_policy() -> None:
    eu = PolicySettings("eu", regions=("eu-*",))
    providers = [
        provider("a", region="eu-de", sovereignty_class="eu-owned"),
        provider("b", region="eu-fr", sovereignty_class="eu-hosted"),
    ]
    field = Field([model("a", "b")], providers, (eu,))
    exchange = field.call(headers=[(b"x-strom-policy", b"eu")])
    field.refuse(503)
    field.answer()
    block = json.loads(exchange.body_out.split(b"data: ")[-2])["strom"]
    named = [
        (each["endpoint_id"], each["region"], each["sovereignty_class"], each["policy_id"])
        for each in block["attempts"]
    ]
    assert named == [("e-a", "eu-de", "eu-owned", "eu"), ("e-b", "eu-fr", "eu-hosted", "eu")]
    assert field.records.all[0].attempts[0].sovereignty_class == "eu-owned"


def test_a_rejected_call_names_the_policy() -> None:
    field = Field([model("a")], [provider("a", region="us-east")], (PolicySettings("eu", regions=("eu-*",)),))
    assert field.call(headers=[(b"x-strom-policy", b"eu")]).status == 403
    (record,) = field.records.all
    assert (record.status, record.policy_id) == ("rejected", "eu")


def test_two_policies_that_restrict_are_both_named() -> None:
    policies = (
        PolicySettings("eu", regions=("eu-*",)),
        PolicySettings("ours", providers=("a",)),
        PolicySettings("any"),
    )
    bound = key("k", policy="eu")
    field = Field([model("a", "b")], [provider("a", region="eu-de"), provider("b", region="eu-fr")], policies, (bound,))
    for wanted, named in (("ours", "eu+ours"), ("any", "eu"), ("eu", "eu")):
        plan = field.router.plan("m", bound, wanted)
        assert plan.policy_id == named
    assert [each.id for each in field.router.plan("m", bound, "ours").endpoints] == ["e-a"]


def test_a_key_that_changes_keeps_no_old_plan() -> None:
    eu = PolicySettings("eu", regions=("eu-*",))
    field = Field([model("a", "b")], [provider("a", region="us-east"), provider("b", region="eu-fr")], (eu,))
    assert len(field.router.plan("m", key("k"), None).endpoints) == 2
    assert len(field.router.plan("m", key("k", policy="eu"), None).endpoints) == 1
