"""A command line under test, and a small HTTP server that answers from a table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from strom.cli.main import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Strom = Callable[..., Outcome]


@pytest.fixture
def strom(capsys: pytest.CaptureFixture[str]) -> Strom:
    """Runs a command line in this process."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(arguments)
        return Outcome(code, *capsys.readouterr())

    return call


class Served:
    """`answers`: path with query → (status, body); `requests`: what was asked, with headers in lower case."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: dict[str, tuple[int, Any]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def answer(self, path: str) -> tuple[int, bytes]:
        status, body = self.answers.get(path) or self.answers.get(
            path.partition("?")[0], (404, {"error": "no such page"})
        )
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def served() -> Iterator[Served]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            status, body = state.answer(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Served(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
