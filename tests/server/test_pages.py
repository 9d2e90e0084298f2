"""The small answers, the table of endpoints, and errors in the words of whoever asked."""

import pytest

from strom.transport.memory import MemoryExchange, Script
from strom.transport.types import Refusal, TransportFailure
from tests.server.rig import ServerRig, answer, json_script, provider

DOWN = Script(status=0, failure=TransportFailure("connect", "refused", sent=False))
ANTHROPIC = [(b"anthropic-version", b"2023-06-01")]


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/hello"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_alive_without_a_key_and_without_a_backend(path: str, method: str) -> None:
    rig = ServerRig()
    exchange = await rig.ask(method, path)
    assert exchange.status == 200
    assert exchange.header_out(b"x-strom-trace-id")
    assert rig.client.sent == []


async def test_ready_when_one_backend_answers() -> None:
    rig = ServerRig(DOWN, json_script({"data": []}), providers=(provider("a"), provider("b")))
    assert (await rig.ask("GET", "/readyz")).status == 200


@pytest.mark.parametrize("script", [DOWN, json_script(b"{}", 503)])
async def test_not_ready_when_none_does(script: Script) -> None:
    assert (await ServerRig(script).ask("GET", "/readyz")).status == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/v1/messages/count_tokens", 405),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/x", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/nothing", 404),
    ],
)
async def test_wrong_methods_and_paths(method: str, path: str, status: int) -> None:
    exchange = await ServerRig().ask(method, path)
    assert exchange.status == status
    assert path in answer(exchange)["error"]["message"]


async def test_errors_speak_the_caller_s_protocol() -> None:
    rig = ServerRig()
    assert answer(await rig.ask("GET", "/v1/messages/nothing"))["type"] == "error"
    assert answer(await rig.ask("GET", "/v1/nothing", headers=ANTHROPIC))["type"] == "error"
    assert isinstance(answer(await rig.ask("GET", "/api/nothing"))["error"], str)
    assert answer(await rig.ask("GET", "/v1/nothing"))["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("body_too_large", 413),
        ("head_too_large", 431),
        ("bad_request", 400),
        ("timeout", 408),
        ("not_implemented", 501),
        ("version_not_supported", 505),
        ("expectation_failed", 417),
        ("draining", 503),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_refusals_of_the_transport_keep_their_status(reason: str, status: int, path: str) -> None:
    exchange = MemoryExchange("POST", path, refusal=Refusal(status, reason, "why"))  # type: ignore[arg-type]
    rig = ServerRig()
    rig.app.handle(exchange)
    assert exchange.status == status
    assert answer(exchange)["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/platform/v1/traces?stream=true", "/platform/v1/keys?stream=1", "/platform/v1/usage"]
)
async def test_the_platform_does_not_stream(path: str) -> None:
    exchange = await ServerRig().ask("GET", path, {"stream": True})
    assert exchange.status == 400


async def test_a_defect_is_a_500_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rig = ServerRig()
    rig.gateway.state = None  # type: ignore[assignment]
    exchange = await rig.ask("GET", "/v1/models")
    assert exchange.status == 500
    assert "NoneType" not in exchange.body_out.decode()
    assert "defect" in caplog.text


async def test_answers_under_way_end_with_the_server() -> None:
    rig = ServerRig()
    exchange = MemoryExchange("GET", "/v1/models")
    rig.app.handle(exchange)
    await rig.app.close()
    assert exchange.state == "new"
    assert all(upstream.aborted for upstream in rig.client.sent)
