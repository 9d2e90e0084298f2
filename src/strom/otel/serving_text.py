"""Message text of the gateway's calls, for spans, where an operator wants it there.

The answer is read a second time, from a bounded copy of what the backend sent, when the call is over; reading it can fail, and
then there is no text. Nothing of this is made unless it is switched on.
"""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.fold import Fold
from strom.core.messages import Request
from strom.gateway.attempt import UpstreamAttempt
from strom.otel.content import input_messages, parts_json
from strom.transport.types import Headers, TransportFailure

MOST_BYTES = 1_048_576
"""Of an answer; what is longer is cut, and with it its text."""


def input_text(request: Request) -> str:
    return input_messages(request.messages)


class TextTap:
    """Stands between the transport and an attempt, and keeps a copy."""

    def __init__(self, attempt: UpstreamAttempt) -> None:
        self._attempt = attempt
        self._codec = attempt.codec
        self._quirks = attempt.endpoint.upstream.quirks
        self._streams = False
        self._pieces: list[bytes] = []
        self._size = 0

    def on_response(self, status: int, headers: Headers) -> None:
        kind = next((value for name, value in headers if name == b"content-type"), b"").lower()
        self._streams = b"json" not in kind or b"ndjson" in kind
        self._attempt.on_response(status, headers)

    def on_body(self, data: bytes) -> None:
        if self._size < MOST_BYTES:
            self._size += len(data)
            self._pieces.append(data[: MOST_BYTES - self._size + len(data)])
        self._attempt.on_body(data)

    def on_read_end(self) -> None:
        self._attempt.on_read_end()

    def on_end(self, *, delimited_by_close: bool) -> None:
        self._attempt.on_end(delimited_by_close=delimited_by_close)

    def on_failure(self, failure: TransportFailure) -> None:
        self._attempt.on_failure(failure)

    def output_text(self, finish_reason: str | None) -> str | None:
        """What came, as the conventions write it. None: nothing that could be read."""
        body = b"".join(self._pieces)
        folded = Fold()
        try:
            if self._streams:
                decoder = self._codec.decoder(self._quirks)
                folded.feed(decoder.feed(body))
                folded.feed(decoder.finish())
            else:
                folded.feed(self._codec.decode_reply(body, self._quirks))
        except StromError:
            return None
        parts = folded.parts()
        return parts_json("assistant", parts, finish_reason or "error") if parts else None
