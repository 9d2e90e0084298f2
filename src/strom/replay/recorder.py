"""The recording proxy: every exchange goes through unchanged and at once, and is written when it is over.

Invariants: what one read brought is forwarded in one write before anything is noted; nothing is written that `scrub` has not
seen; a file is written whole. A failure to write is reported once per exchange and never reaches the client. Responses are
asked for without compression, so that reads stay readable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from strom.replay import lines, scrub
from strom.replay.recording import Asked, End, Ending, Head, Piece, Recording
from strom.replay.shelf import SUFFIX
from strom.transport.types import (
    Exchange,
    Headers,
    OutgoingRequest,
    TransportFailure,
    UpstreamClient,
    UpstreamExchange,
)
from strom.upstreams.urls import BaseUrl

MAX_KEPT_BYTES = 67_108_864
"""More of one response is forwarded and not recorded."""
CONNECT_TIMEOUT_S = 10.0
_TRANSPORT_S = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


class Written(msgspec.Struct, frozen=True):
    """An exchange that is over. `path` None: it could not be written, and `error` says why."""

    recording: Recording
    path: Path | None
    error: str | None = None


_PRIVATE = 0o600
"""Prompts and answers are in it. A file that is there already keeps its mode."""


class Store:
    """Where recordings go: a folder with one file each, or one file that grows."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._single = out.suffix == SUFFIX
        self._number = 0

    def prepare(self) -> None:
        """Raises OSError when nothing can be written there."""
        folder = self._out.parent if self._single else self._out
        folder.mkdir(parents=True, exist_ok=True)
        if self._single:
            self._out.touch(mode=_PRIVATE)
            self._out.open("ab").close()
            return
        taken = (path.name.partition("-")[0] for path in folder.glob(f"*{SUFFIX}"))
        self._number = max((int(number) for number in taken if number.isascii() and number.isdigit()), default=0)

    def write(self, recording: Recording) -> Path:
        """Raises OSError."""
        data = lines.encode(recording)
        if self._single:
            with self._out.open("ab") as file:
                file.write(data)
            return self._out
        self._number += 1
        words = [word for word in recording.asked.path.split("/") if word]
        name = "-".join("".join(letter for letter in word if letter.isalnum() or letter in "._") for word in words)
        path = self._out / f"{self._number:04d}-{recording.asked.method.lower()}-{name[:60] or 'root'}{SUFFIX}"
        partial = path.with_suffix(".part")
        partial.touch(mode=_PRIVATE)
        partial.write_bytes(data)
        partial.rename(path)
        return path


class Recorder:
    """Implements the transport's Handler. `on_written` is told of every exchange that is over."""

    def __init__(
        self, client: UpstreamClient, base: BaseUrl, store: Store, on_written: Callable[[Written], None]
    ) -> None:
        self.client = client
        self.base = base
        self._store = store
        self._on_written = on_written

    def handle(self, exchange: Exchange) -> None:
        if exchange.refusal is not None:
            refusal = exchange.refusal
            exchange.respond(refusal.status, _TEXT, f"strom record: {refusal.detail}\n".encode())
            return
        _Tap(self, exchange).start()

    def write(self, recording: Recording) -> None:
        try:
            written = Written(recording, self._store.write(recording))
        except OSError as error:
            written = Written(recording, None, str(error))
        self._on_written(written)


_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]


class _Tap:
    """One exchange on its way through: a ResponseReceiver that forwards, then notes."""

    def __init__(self, recorder: Recorder, exchange: Exchange) -> None:
        self._recorder = recorder
        self._exchange = exchange
        self._upstream: UpstreamExchange | None = None
        self._began = time.monotonic()
        self._recorded_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._head: Head | None = None
        self._read: list[bytes] = []
        self._times: list[float] = []
        self._reads: list[bytes] = []
        self._kept_bytes = 0
        self._missed = False

    def start(self) -> None:
        exchange, head = self._exchange, self._exchange.head
        target = f"{head.path}?{head.query}" if head.query else head.path
        headers = [field for field in head.headers if field[0] not in _TRANSPORT_S]
        request = OutgoingRequest(head.method, self._recorder.base.target(target), headers, exchange.body)
        exchange.on_disconnect = self._client_left
        exchange.on_pause = self._client_slow
        exchange.on_resume = self._client_ready
        try:
            self._upstream = self._recorder.client.send(
                self._recorder.base.origin, request, self, connect_timeout_s=CONNECT_TIMEOUT_S
            )
        except ValueError as error:
            self._exchange.respond(400, _TEXT, f"strom record: {error}\n".encode())

    # -- ResponseReceiver

    def on_response(self, status: int, headers: Headers) -> None:
        length = next((value for name, value in headers if name == b"content-length"), None)
        coded = any(name == b"content-encoding" for name, _ in headers)
        passed = [field for field in headers if field[0] not in _TRANSPORT_S]
        self._exchange.start(status, passed, length=None if length is None or coded else int(length))
        fields = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
        kept = fields if not coded else tuple(f for f in fields if f[0] not in ("content-encoding", "content-length"))
        self._head = Head(self._now_ms(), status, scrub.response_headers(kept))

    def on_body(self, data: bytes) -> None:
        self._read.append(data)

    def on_read_end(self) -> None:
        if self._read:
            data = self._take_read()
            self._exchange.write(data)
            self._keep(data)

    def on_end(self, *, delimited_by_close: bool) -> None:
        data = self._take_read()
        self._exchange.finish(data)
        self._keep(data)
        self._write("complete", None)

    def on_failure(self, failure: TransportFailure) -> None:
        if self._head is None:
            message = f"strom record: the backend cannot be reached or gave no answer: {failure.detail}\n"
            self._exchange.respond(502, _TEXT, message.encode())
            self._write("unreachable", f"{failure.kind}: {failure.detail}")
            return
        data = self._take_read()
        if data:
            self._exchange.write(data)
            self._keep(data)
        self._exchange.abort()
        # The transport tells a reset from a close only in the words of the system.
        self._write("reset" if "reset" in failure.detail.lower() else "cut", f"{failure.kind}: {failure.detail}")

    # -- the client

    def _client_left(self) -> None:
        if self._upstream is not None:
            self._upstream.abort()
        self._write("client_left", None)

    def _client_slow(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()

    def _client_ready(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()

    # -- the recording

    def _take_read(self) -> bytes:
        data = self._read[0] if len(self._read) == 1 else b"".join(self._read)
        self._read.clear()
        return data

    def _keep(self, data: bytes) -> None:
        self._missed = self._missed or self._kept_bytes + len(data) > MAX_KEPT_BYTES
        if data and not self._missed:
            self._kept_bytes += len(data)
            self._times.append(self._now_ms())
            self._reads.append(data)

    def _now_ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 3)

    def _write(self, kind: End, detail: str | None) -> None:
        if self._missed:
            kind, detail = "cut", f"only the first {self._kept_bytes} bytes were kept; in truth: {kind}"
        head = self._exchange.head
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
        secrets = scrub.credentials_in(fields)
        target = scrub.target(f"{head.path}?{head.query}" if head.query else head.path)
        body = scrub.body(self._exchange.body, secrets)
        parts = zip(self._times, scrub.pieces(self._reads, secrets), strict=True)
        recording = Recording(
            Asked(head.method, target, scrub.request_headers(fields), body),
            self._head,
            tuple(Piece(t_ms, data) for t_ms, data in parts),
            Ending(self._now_ms(), kind, detail),
            self._recorded_at,
        )
        self._recorder.write(recording)
