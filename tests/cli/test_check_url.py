"""`strom check` over real sockets: its table, its JSON, its exit codes, and the compression of streams."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from strom.transport.types import OutgoingRequest
from tests.cli.conftest import Outcome, Strom
from tests.conformance.good import answer
from tests.conformance.stage import Handler, Reply


class Endpoint:
    """A good endpoint on loopback. `compresses`: streams are gzipped where the client offers to read that."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.handler: Handler = answer
        self.compresses = False


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body leave together: else each answer waits for a delayed acknowledgement

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            reply = state.handler(OutgoingRequest(self.command, self.path, headers, sent))
            body = b"".join(reply.frames)
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name.decode(), value.decode())
            if state.compresses and len(reply.frames) > 1 and "gzip" in self.headers["accept-encoding"]:
                self.send_header("content-encoding", "gzip")
                body = gzip.compress(body)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that leaves is what some checks are about."""

    server = Server(("127.0.0.1", 0), Page)
    state = Endpoint(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_good_endpoint(strom: Strom, endpoint: Endpoint) -> None:
    shown = strom("check", endpoint.url)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[:3] == [f"{endpoint.url}  model good-1", "", "openai-chat  POST /v1/chat/completions"]
    assert "  PASS  stream.compression    none, although gzip was offered" in lines
    assert "rule:" not in shown.out
    assert ", 0 failed, " in lines[-1]


def test_as_json(strom: Strom, endpoint: Endpoint) -> None:
    shown = strom("check", endpoint.url + "/v1", "--json", "--protocol", "ollama", "-m", "good-1", "--timeout", "9")
    assert shown.code == 0
    assert shown.json["ok"] is True
    assert [protocol["protocol"] for protocol in shown.json["protocols"]] == ["ollama"]


def test_a_compressed_stream_fails_with_its_rule(strom: Strom, endpoint: Endpoint) -> None:
    endpoint.compresses = True
    shown = strom("check", endpoint.url, "--protocol", "anthropic")
    assert shown.code == 1
    lines = shown.out.splitlines()
    at = lines.index("  FAIL  stream.compression    content-encoding is gzip")
    assert lines[at + 1].strip().startswith("rule: A stream is not compressed")


def test_all_demands_every_protocol(strom: Strom, endpoint: Endpoint) -> None:
    endpoint.handler = lambda request: answer(
        OutgoingRequest("GET", "/none", []) if request.target.startswith("/api") else request
    )
    shown = strom("check", endpoint.url)
    assert shown.code == 0
    assert "ollama: not spoken (404: no such page)" in shown.out
    assert strom("check", endpoint.url, "--protocol", "all").code == 1


def test_nothing_is_spoken(strom: Strom, endpoint: Endpoint) -> None:
    endpoint.handler = lambda _: answer(OutgoingRequest("GET", "/none", []))
    shown = strom("check", endpoint.url)
    assert shown.code == 1
    assert shown.err == "No protocol is spoken there; name one with --protocol to see what is wrong with it.\n"


def test_a_key_from_the_environment(strom: Strom, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[bytes, bytes]] = []

    def remember(request: OutgoingRequest) -> Reply:
        seen.append(dict(request.headers))
        return answer(request)

    endpoint.handler = remember
    monkeypatch.setenv("K", "key-1")
    assert strom("check", endpoint.url, "--protocol", "openai-chat", "--api-key-env", "K").code == 0
    assert all(headers[b"authorization"] == b"Bearer key-1" for headers in seen)


def test_nobody_there(strom: Strom, free_port: int) -> None:
    shown = strom("check", f"http://127.0.0.1:{free_port}")
    assert (shown.code, shown.out) == (1, "")
    assert "cannot be reached" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("localhost:8080",),
        ("http://127.0.0.1:1/v1/chat/completions",),
        ("http://127.0.0.1:1", "--protocol", "soap"),
        ("http://127.0.0.1:1", "--api-key-env", "NONE"),
        ("http://127.0.0.1:1", "--timeout", "0"),
    ],
)
def test_wrong_usage(strom: Strom, arguments: tuple[str, ...]) -> None:
    shown: Outcome = strom("check", *arguments)
    assert shown.code == 2
    assert shown.out == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_needs_no_proxy(
    strom: Strom, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, host: str, free_port: int
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port}")
    url = endpoint.url.replace("127.0.0.1", host)
    assert strom("check", url, "--protocol", "openai-chat").code == 0
    assert "cannot be reached" in strom("check", "http://name.invalid").err
