"""How `/platform/v1` reads requests and words refusals: every operation of the table, and every way to ask wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from strom.core.errors import GatewayError
from strom.server.platform_operations import OPERATIONS, Operation
from strom.server.platform_policies import PlatformPolicies
from strom.transport.memory import MemoryExchange
from strom.transport.types import Refusal
from tests.server.rig import ServerRig, answer
from tests.server.test_platform import KEYS
from tests.server.test_platform_keys import KeyRig

PROBLEM = {"type", "title", "status", "detail", "instance", "code", "param"}


def rig() -> KeyRig:
    made = KeyRig()
    PlatformPolicies(made.gateway, lambda: made.managed.keys).register(made.app.platform)
    return made


def path_of(operation: Operation) -> str:
    return operation.path.replace("{key}", "ci").replace("{trace_id}", "none")


def check_problem(exchange: MemoryExchange, status: int) -> dict[str, Any]:
    assert exchange.status == status, exchange.body_out
    assert exchange.header_out(b"content-type") == b"application/problem+json"
    assert exchange.header_out(b"cache-control") == b"no-store"
    body: dict[str, Any] = answer(exchange)
    assert set(body) == PROBLEM
    assert (body["status"], body["type"]) == (status, f"urn:strom:problem:{body['code']}")
    assert body["instance"].encode() == exchange.header_out(b"x-strom-trace-id")
    return body


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_only_admins_may_ask_anything(operation: Operation) -> None:
    made = rig()
    plain = (await made.make("plain"))["secret"].encode()
    for headers, status in (([], 401), ([(b"x-api-key", b"wrong")], 401), ([(b"x-api-key", plain)], 403)):
        refused = await made.ask(operation.method, path_of(operation), None, headers)
        check_problem(refused, status)
        assert (refused.header_out(b"www-authenticate") == b"Bearer") is (status == 401)


async def test_what_is_there_is_not_told_to_others() -> None:
    made = ServerRig(keys=KEYS)
    for method, path in (
        ("GET", "/platform/v1/nothing"),
        ("PUT", "/platform/v1/keys"),
        ("OPTIONS", "/platform/v1/keys"),
    ):
        check_problem(await made.ask(method, path), 401)
    check_problem(await made.ask("GET", "/platform", headers=[(b"x-api-key", b"boss")]), 404)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_every_operation_is_answered_and_refuses_what_it_does_not_know(operation: Operation) -> None:
    made = rig()
    await made.make("ci")
    found = await made.boss(operation.method, path_of(operation))
    assert found.status in (200, 201, *operation.errors, 400)
    problem = check_problem(await made.boss(operation.method, f"{path_of(operation)}?colour=red"), 400)
    assert problem["param"] == "colour"
    assert "unknown query parameter 'colour'" in problem["detail"]
    assert "red" not in problem["detail"]
    streaming = check_problem(await made.boss(operation.method, f"{path_of(operation)}?stream=true"), 400)
    assert streaming["param"] == "stream"
    assert (
        check_problem(await made.boss(operation.method, path_of(operation), {"stream": True}), 400)["param"] == "stream"
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_methods(operation: Operation) -> None:
    made = rig()
    refused = await made.boss("PATCH", path_of(operation))
    check_problem(refused, 405)
    allowed = refused.header_out(b"allow").decode().split(", ")  # type: ignore[union-attr]
    assert operation.method in allowed
    assert ("HEAD" in allowed) is ("GET" in allowed)
    options = await made.boss("OPTIONS", path_of(operation))
    assert (options.status, options.header_out(b"allow")) == (204, ", ".join(allowed).encode())


async def test_head_is_a_get_without_its_body() -> None:
    made = rig()
    got, head = await made.boss("GET", "/platform/v1/keys"), await made.boss("HEAD", "/platform/v1/keys")
    assert (head.status, head.header_out(b"content-type")) == (got.status, got.header_out(b"content-type"))


@pytest.mark.parametrize(
    ("query", "param", "words"),
    [
        ("limt=3", "limt", "did you mean 'limit'?"),
        ("limit=0", "limit", ">= 1"),
        ("limit=1001", "limit", "<= 1000"),
        ("limit=", "limit", "limit: expected"),
        ("limit=1&limit=2", "limit", "twice"),
        ("status=done", "status", "status: invalid enum"),
        ("since=yesterday", "since", "since: expected a time"),
        ("since=", "since", "since: expected"),
        ("cursor=x", "cursor", "not a cursor"),
        ("model=%00", "model", "control characters"),
    ],
)
async def test_queries_name_what_is_wrong(query: str, param: str, words: str) -> None:
    problem = check_problem(await rig().boss("GET", f"/platform/v1/traces?{query}"), 400)
    assert problem["param"] == param
    assert words in problem["detail"]


async def test_empty_text_counts_as_absent_and_not_streaming_may_be_said() -> None:
    assert (await rig().boss("GET", "/platform/v1/traces?cursor=&model=&stream=false")).status == 200


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"nme": "x"}, "nme", "unknown member of the body 'nme'; did you mean 'name'?"),
        ({"name": "x", "limits": {"budget": {"amont": 1}}}, "limits.budget.amont", "did you mean 'amount'?"),
        ({"admin": True}, "name", "name: is missing in the body"),
        ({"name": "x", "limits": {"budget": {}}}, "limits.budget.amount", "is missing"),
        (
            {"name": "x", "limits": {"concurrent": "many"}},
            "limits.concurrent",
            "limits.concurrent: expected `int | null`",
        ),
        ([], None, "body: expected `object`"),
        (b"{", None, "not valid JSON"),
    ],
)
async def test_bodies_name_what_is_wrong(body: Any, param: str | None, words: str) -> None:
    problem = check_problem(await rig().boss("POST", "/platform/v1/keys", body), 400)
    assert problem["param"] == param
    assert words in problem["detail"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (b"application/json", 201),
        (b"Application/JSON; charset=utf-8", 201),
        (b"application/x-www-form-urlencoded", 415),
        (b"text/plain", 415),
        (b"", 415),
    ],
)
async def test_a_body_is_json(kind: bytes, status: int) -> None:
    made = rig()
    headers = [(b"authorization", b"Bearer boss"), (b"content-type", kind)]
    assert (await made.ask("POST", "/platform/v1/keys", {"name": "x"}, headers)).status == status


async def test_without_a_body_its_kind_does_not_matter() -> None:
    made = rig()
    await made.make("ci")
    headers = [(b"authorization", b"Bearer boss"), (b"content-type", b"application/x-www-form-urlencoded")]
    assert (await made.ask("POST", "/platform/v1/keys/ci/disable", None, headers)).status == 200


async def test_a_number_without_a_fraction_is_an_integer() -> None:
    made = rig()
    key = (await made.make("ci", limits={"concurrent": 5.0}))["key"]
    assert key["limits"]["concurrent"] == 5


@pytest.mark.parametrize(("reason", "status"), [("body_too_large", 413), ("draining", 503), ("bad_request", 400)])
async def test_refusals_of_the_transport(reason: Any, status: int) -> None:
    exchange = MemoryExchange("POST", "/platform/v1/keys", refusal=Refusal(status, reason, "why"))
    ServerRig().app.handle(exchange)
    check_problem(exchange, status)
    assert (exchange.header_out(b"retry-after") == b"1") is (status == 503)


async def test_a_defect_is_a_problem_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = ServerRig()

    async def fail(_: object) -> bytes:
        raise ValueError("secret of the house")

    made.app.platform.register("list_traces", fail)
    problem = check_problem(await made.ask("GET", "/platform/v1/traces"), 500)
    assert problem["code"] == GatewayError.code
    assert "secret of the house" not in problem["detail"]
    assert "secret of the house" in caplog.text


async def test_what_this_gateway_does_not_have() -> None:
    check_problem(await ServerRig().ask("GET", "/platform/v1/keys"), 404)


@pytest.mark.parametrize("path", ["/platform/v1/keys/a%00b", "/platform/v1/traces/%00", "/platform/v1/keys//rotate"])
async def test_names_that_nothing_has(path: str) -> None:
    made = rig()
    method = "POST" if path.endswith("rotate") else "GET"
    check_problem(await made.boss(method, path), 404)


async def test_pages_of_endpoints_and_limits() -> None:
    made = rig()
    for page in ("endpoints", "limits"):
        whole = answer(await made.boss("GET", f"/platform/v1/{page}"))
        first = answer(await made.boss("GET", f"/platform/v1/{page}?limit=1"))
        assert first["data"] == whole["data"][:1]
        check_problem(await made.boss("GET", f"/platform/v1/{page}?cursor=WyJ4Il0"), 400)
