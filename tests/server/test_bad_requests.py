"""Requests that are no requests: what cannot be read is refused by name, never taken for something else."""

import gzip
import hashlib
import json
from typing import Any

import pytest

from strom.core.access import KeySettings, PolicySettings
from strom.server.embeddings import FRONTS as EMBEDDING_PATHS
from strom.transport.memory import MemoryExchange
from strom.transport.types import Refusal
from tests.patience import until
from tests.server.rig import ServerRig, answer

CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/api/chat", "/v1/embeddings"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"zstd", b"GZIP, identity"])
async def test_a_compressed_body_is_refused_by_name(path: str, coding: bytes) -> None:
    rig = ServerRig()
    body = gzip.compress(json.dumps(CALL).encode())
    exchange = await rig.ask("POST", path, body, headers=[(b"content-encoding", coding)])
    assert exchange.status == 415
    assert "Compressed" in str(answer(exchange))
    assert rig.client.sent == []


@pytest.mark.parametrize("path", PATHS[:2])
async def test_a_body_that_calls_itself_identity_is_read(path: str) -> None:
    rig = ServerRig()
    exchange = await rig.ask("POST", path, {**CALL, "model": ""}, headers=[(b"content-encoding", b"identity")])
    assert exchange.status == 400
    assert "model" in str(answer(exchange))


@pytest.mark.parametrize("path", PATHS)
async def test_a_name_that_is_no_name_is_neither_echoed_nor_kept(path: str) -> None:
    rig = ServerRig()
    exchange = await rig.ask("POST", path, {**CALL, "input": "x", "model": "z" * 100_000})
    assert exchange.status == 400
    assert len(exchange.body_out) < 1000
    assert all(len(record.model_requested or "") <= 512 for record in rig.store.list().records)


@pytest.mark.parametrize("path", PATHS)
async def test_two_policy_headers_are_refused(path: str) -> None:
    """To heed only the first one would loosen what the second one demands."""
    rig = ServerRig(policies=(PolicySettings("a"), PolicySettings("b", regions=("eu-*",))))
    headers = [(b"x-strom-policy", b"a"), (b"x-strom-policy", b"b")]
    exchange = await rig.ask("POST", path, {**CALL, "input": "x"}, headers=headers)
    assert exchange.status == 400
    assert rig.client.sent == []


async def test_what_was_never_sent_is_recorded_as_rejected() -> None:
    rig = ServerRig()
    await rig.ask("POST", "/v1/chat/completions", b"{")
    (record,) = rig.store.list().records
    assert (record.status, record.http_status, record.usage_source) == ("rejected", 400, "none")
    assert record.model_requested is None


RECORDED = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/api/generate", *EMBEDDING_PATHS]
REFUSALS = [Refusal(413, "body_too_large", "why"), Refusal(400, "bad_request", "why"), Refusal(503, "draining", "why")]


@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_what_the_transport_did_not_take_is_recorded(path: str, refusal: Refusal) -> None:
    key = KeySettings("ci", hashlib.sha256(b"k").hexdigest(), policy="eu-only")
    rig = ServerRig(keys=(key,), policies=(PolicySettings("eu-only", regions=("eu-*",)),))
    exchange = MemoryExchange("POST", path, headers=[(b"x-api-key", b"k")], refusal=refusal)
    rig.app.handle(exchange)
    await until(lambda: exchange.state == "finished", told=lambda: path)
    (record,) = rig.store.list().records
    assert (exchange.status, record.http_status, record.status) == (refusal.status, refusal.status, "rejected")
    assert (record.key_name, record.policy_id, record.model_requested) == ("ci", "eu-only", None)


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/v1/embeddings"]
)
@pytest.mark.parametrize("body", [b"{", {**CALL, "input": "x"}])
async def test_a_record_names_the_policy_that_binds_its_key_however_early_it_is_refused(path: str, body: Any) -> None:
    key = KeySettings("ci", hashlib.sha256(b"k").hexdigest(), policy="eu-only")
    rig = ServerRig(keys=(key,), policies=(PolicySettings("eu-only", regions=("eu-*",)),))
    headers = [(b"x-api-key", b"k"), (b"x-strom-endpoint", b"e1")]
    assert (await rig.ask("POST", path, body, headers=headers)).status in (400, 403)
    (record,) = rig.store.list().records
    assert (record.key_name, record.policy_id) == ("ci", "eu-only")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/show"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_a_wrong_method_is_told_the_right_one(path: str, method: str) -> None:
    exchange = await ServerRig().ask(method, path)
    assert exchange.status == 405
    assert exchange.header_out(b"allow") == b"POST"


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/v1/models", "/v1/models/m"])
async def test_nothing_is_posted_to_a_page(path: str) -> None:
    exchange = await ServerRig().ask("POST", path, {})
    assert exchange.status == 405
    assert exchange.header_out(b"allow") == b"GET, HEAD"
