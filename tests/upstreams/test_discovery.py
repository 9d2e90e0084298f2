"""Discovery: every kind by what it really answers, nothing but models, Strom never, and always within its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from strom.transport.types import Headers, Origin, OutgoingRequest, ResponseReceiver, TransportFailure, UpstreamExchange
from strom.upstreams.discovery import BUDGET_S, Answer, Found, discover, identify
from strom.upstreams.rows import UPSTREAMS, UpstreamRow
from tests.recordings import load

JSON: Headers = [(b"content-type", b"application/json")]
UVICORN: Headers = [(b"server", b"uvicorn"), *JSON]
NOT_FOUND = Answer(404, UVICORN, b'{"detail":"Not Found"}')
SILENT = Answer(0, [], b"")
"""The connection is accepted and nothing comes."""

Machine = dict[int, dict[str, Answer]]
"""What listens on which port and answers to which path; a port that is not here refuses."""


def models(*names: str, **more: object) -> bytes:
    return msgspec.json.encode({"object": "list", "data": [{"id": name, "object": "model"} | more for name in names]})


class FakeExchange:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def express(self, take: Callable[[bytes], None]) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FakeClient:
    """An UpstreamClient whose network is a `Machine`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.asked: list[tuple[int, str]] = []
        self.silent: list[FakeExchange] = []

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        assert origin.host == "127.0.0.1"
        assert request.method == "GET"
        assert not any(name in {b"authorization", b"x-api-key"} for name, _ in request.headers)
        self.asked.append((origin.port, request.target))
        answer = self.machine.get(origin.port, {}).get(request.target, NOT_FOUND)
        exchange = FakeExchange()
        if origin.port not in self.machine:
            failure = TransportFailure("connect", "refused", sent=False)
            asyncio.get_running_loop().call_soon(receiver.on_failure, failure)
        elif answer is SILENT:
            self.silent.append(exchange)
        else:
            asyncio.get_running_loop().call_soon(self._answer, receiver, answer)
        return exchange

    def _answer(self, receiver: ResponseReceiver, answer: Answer) -> None:
        receiver.on_response(answer.status, answer.headers)
        receiver.on_body(answer.body)
        receiver.on_read_end()
        receiver.on_end(delimited_by_close=False)

    def close(self) -> None: ...

    def stats(self) -> dict[str, Any]:
        return {}


def recorded(engine: str, case: str) -> Answer:
    recording = load(engine, case)
    headers = [(name.encode(), value.encode()) for name, value in recording.headers]
    return Answer(recording.index["status"], headers, recording.response)


async def test_no_server_no_find() -> None:
    client = FakeClient({})
    assert await discover(client) == []
    assert {port for port, _ in client.asked} == {port for row in UPSTREAMS.values() for port in row.ports}


@pytest.mark.parametrize(
    ("engine", "case", "kind"),
    [
        ("xllamacpp", "models", "llama-cpp"),
        ("vllm", "models", "vllm"),
        ("mlx_lm", "models", "mlx-lm"),
        ("mlx_lm_tiny", "models", "mlx-lm"),
        ("transformers_tiny", "models", "transformers"),
    ],
)
async def test_recorded_model_lists_give_their_server_away(engine: str, case: str, kind: str) -> None:
    client = FakeClient({8000: {"/v1/models": recorded(engine, case)}})
    (found,) = await discover(client)
    assert (found.kind, found.base_url) == (kind, "http://127.0.0.1:8000")
    assert len([port for port, _ in client.asked if port == 8000]) == 1


async def test_an_unknown_server_that_lists_models_is_generic() -> None:
    client = FakeClient({8000: {"/v1/models": recorded("llama_cpp_python", "models")}})
    assert await discover(client) == [Found("generic", 8000, ("smollm2-135m",))]


async def test_ollama_is_known_by_its_version() -> None:
    machine = {
        11434: {
            "/v1/models": Answer(200, JSON, models("qwen3:8b", "llama3:latest", owned_by="library")),
            "/api/version": Answer(200, JSON, b'{"version":"0.13.1"}'),
        }
    }
    assert await discover(FakeClient(machine)) == [Found("ollama", 11434, ("qwen3:8b", "llama3:latest"))]


async def test_ollama_without_models_is_found_all_the_same() -> None:
    machine = {
        11434: {
            "/v1/models": Answer(200, JSON, b'{"object":"list","data":null}'),
            "/api/version": Answer(200, JSON, b'{"version":"0.13.1"}'),
        }
    }
    assert await discover(FakeClient(machine)) == [Found("ollama", 11434)]


async def test_lm_studio_is_known_by_its_own_list() -> None:
    machine = {
        1234: {
            "/v1/models": Answer(200, JSON, models("qwen3-4b", owned_by="organization_owner")),
            "/api/v0/models": Answer(200, JSON, models("qwen3-4b", compatibility_type="gguf", state="loaded")),
        }
    }
    assert await discover(FakeClient(machine)) == [Found("lm-studio", 1234, ("qwen3-4b",))]


async def test_omlx_is_known_by_its_owner() -> None:
    machine = {8000: {"/v1/models": Answer(200, UVICORN, models("qwen", owned_by="omlx"))}}
    assert await discover(FakeClient(machine)) == [Found("omlx", 8000, ("qwen",))]


async def test_several_at_once_come_by_port() -> None:
    machine = {
        8080: {"/v1/models": recorded("xllamacpp", "models")},
        8000: {"/v1/models": recorded("vllm", "models")},
        8081: {"/v1/models": recorded("mlx_lm_tiny", "models")},
    }
    found = await discover(FakeClient(machine))
    assert [(one.port, one.kind) for one in found] == [(8000, "vllm"), (8080, "llama-cpp"), (8081, "mlx-lm")]


async def test_strom_never_finds_strom() -> None:
    headers = [*JSON, (b"x-strom-trace-id", b"abc")]
    client = FakeClient({8080: {"/v1/models": Answer(200, headers, models("any"))}})
    assert await discover(client) == []
    assert len([port for port, _ in client.asked if port == 8080]) == 1


async def test_a_server_that_wants_a_key_is_told_by_its_header() -> None:
    client = FakeClient({8080: {"/v1/models": recorded("xllamacpp_auth", "models_noauth")}})
    assert await discover(client) == [Found("llama-cpp", 8080, needs_key=True)]


@pytest.mark.parametrize(
    "answer",
    [
        NOT_FOUND,
        Answer(200, [(b"content-type", b"text/html")], b"<html>"),
        Answer(401, UVICORN, b"{}"),
        Answer(200, JSON, b'{"data": [{"name": "no id"}]}'),
        Answer(200, JSON, b"\xff\xfe"),
        Answer(200, JSON, b'{"data": "' + b"x" * (2 << 20) + b'"}'),
        Answer(404, [(b"server", b"BaseHTTP/0.6 Python/3.11.7")], b"Not Found"),
    ],
)
async def test_other_web_servers_are_not_found(answer: Answer) -> None:
    assert await discover(FakeClient({8000: {"/v1/models": answer}})) == []


async def test_silence_costs_no_more_than_the_budget() -> None:
    machine: Machine = {8000: {"/v1/models": SILENT}, 8080: {"/v1/models": recorded("xllamacpp", "models")}}
    client = FakeClient(machine)
    start = time.monotonic()
    assert [one.port for one in await discover(client)] == [8080]
    assert time.monotonic() - start < BUDGET_S + 20
    assert all(exchange.aborted for exchange in client.silent)


async def test_silence_in_the_second_round_still_finds_the_models() -> None:
    silent = dict.fromkeys(("/api/version", "/api/v0/models", "/props", "/version"), SILENT)
    client = FakeClient({8000: {"/v1/models": Answer(200, UVICORN, models("a"))} | silent})
    assert await discover(client) == [Found("generic", 8000, ("a",))]


async def test_only_kinds_of_the_given_table_are_found() -> None:
    rows = {"generic": UpstreamRow(ports=(9000,))}
    assert await discover(FakeClient({9000: {"/v1/models": recorded("vllm", "models")}}), rows) == []


def test_every_sign_names_a_kind_of_the_table() -> None:
    assert identify({"/version": Answer(200, JSON, b'{"version":"0.32.0"}')}) == "vllm"
    assert identify({"/props": Answer(200, JSON, b'{"default_generation_settings":{}}')}) == "llama-cpp"
    assert identify({}) is None


async def test_over_real_sockets(free_ports: Callable[[int], list[int]]) -> None:
    """A server that answers beside a closed port and one that says nothing."""
    from strom.transport.client import NativeClient

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = models("m", owned_by="vllm") if head.startswith(b"GET /v1/models ") else b"{}"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    speaking, silent, closed = free_ports(3)
    rows = UPSTREAMS | {"generic": UpstreamRow(ports=(speaking, silent, closed))}
    client = NativeClient(environ={})
    servers = [
        await asyncio.start_server(answer, "127.0.0.1", speaking),
        await asyncio.start_server(say_nothing, "127.0.0.1", silent),
    ]
    try:
        assert Found("vllm", speaking, ("m",)) in await discover(client, rows)
    finally:
        client.close()
        for server in servers:
            server.close()
