"""Reads one response: signals in, canonical events out. What was asked for does not decide how it is read; what came does.

An event stream feeds the protocol's decoder as it comes; a whole body and an error body are collected within a limit.
Ends in exactly one `Completed` or `Failed`; after it everything is ignored.
"""

from __future__ import annotations

import enum

from strom.client.failures import as_callers, explain
from strom.core.errors import InvalidStreamEvent, StromError
from strom.core.events import Completed, Event, Failed
from strom.core.tool_names import ToolNameFilter
from strom.protocols.codec import Codec, Quirks, StreamDecoder, ToolName
from strom.transport.types import Headers, TransportFailure

MAX_ERROR_BYTES = 1_048_576
MAX_WHOLE_BYTES = 268_435_456


class _Mode(enum.Enum):
    WAITING = 0
    STREAM = 1
    WHOLE = 2
    ERROR = 3
    OVER = 4


class ResponseReader:
    """`refused`: the error is the whole answer (a status, or no answer at all), not a frame in a stream."""

    __slots__ = (
        "_body", "_codec", "_decoder", "_mode", "_name", "_names", "_quirks", "_size", "_streams",
        "ended", "headers", "refused", "status", "unsent",
    )  # fmt: skip

    def __init__(self, codec: Codec, quirks: Quirks, name: str, names: dict[str, ToolName], *, streams: bool) -> None:
        self._codec = codec
        self._quirks = quirks
        self._name = name
        self._names = ToolNameFilter(names) if names else None
        self._streams = streams
        self._decoder: StreamDecoder | None = None
        self._mode = _Mode.WAITING
        self._body: list[bytes] = []
        self._size = 0
        self.status: int | None = None
        self.headers: Headers = []
        self.refused = False
        self.unsent = False
        self.ended = False

    def respond(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        if not 200 <= status < 300:
            self._mode = _Mode.ERROR
        elif self._is_stream(headers):
            self._mode = _Mode.STREAM
            self._decoder = self._codec.decoder(self._quirks)
        else:
            self._mode = _Mode.WHOLE

    def feed(self, data: bytes) -> list[Event]:
        decoder = self._decoder
        if decoder is not None:
            return self._pass_on(decoder.feed(data))
        if self._mode is _Mode.OVER:
            return []
        self._size += len(data)
        self._body.append(data)
        limit = MAX_ERROR_BYTES if self._mode is _Mode.ERROR else MAX_WHOLE_BYTES
        return self._judge_body() if self._size > limit else []

    def end(self) -> list[Event]:
        self.ended = True
        if self._decoder is not None:
            return self._pass_on(self._decoder.finish())
        return [] if self._mode is _Mode.OVER else self._judge_body()

    def break_off(self, failure: TransportFailure) -> list[Event]:
        self.ended = True
        if self._mode is _Mode.OVER:
            return []
        self.refused = self._mode is not _Mode.STREAM and failure.kind != "cut"
        self.unsent = not failure.sent
        return self._fail(explain(failure, self._name))

    def close(self) -> None:
        self._mode, self._decoder = _Mode.OVER, None
        self._body.clear()

    def _judge_body(self) -> list[Event]:
        body = b"".join(self._body)
        if self._mode is _Mode.ERROR:
            self.refused = True
            return self._fail(self._codec.decode_error(self.status or 0, self.headers, body))
        if self._size > MAX_WHOLE_BYTES:
            return self._fail(InvalidStreamEvent(f"The reply is longer than {MAX_WHOLE_BYTES} bytes."))
        return self._pass_on(self._codec.decode_reply(body, self._quirks))

    def _fail(self, error: StromError) -> list[Event]:
        self.close()
        return [Failed(as_callers(error))]

    def _pass_on(self, events: list[Event]) -> list[Event]:
        if self._names is not None:
            events = self._names.feed(events)
        last = events[-1] if events else None
        if type(last) is Completed or type(last) is Failed:
            self.close()
            if type(last) is Failed:
                events[-1] = Failed(as_callers(last.error))
        return events

    def _is_stream(self, headers: Headers) -> bool:
        """By content type; one that says nothing of use is what was asked for."""
        kind = next((value for name, value in headers if name == b"content-type"), b"").lower()
        if b"event-stream" in kind or b"ndjson" in kind:
            return True
        return self._streams and b"json" not in kind and b"html" not in kind
