"""The event stream of a background response: this gateway's own, whatever the upstream's looked like.

A background response has its id before any upstream is asked, and its events are kept so that a client may come back and
read on. So every event is numbered anew: 0 is response.created, 1 response.queued, then everything the call brings but for
its own beginning. The number of an event is its place in `frames`; its `id:` line counts from 1, as that of any resumable
stream. Every Response object in it carries our id and
`background: true`. Exactly one terminal event ends it: that of the call, or `response.failed` (of a cancelled response too:
its end is not proven).
Source: protocol-facts.md sections 2.1 and 2.3; openai-python 3.57.0 types/responses/response_queued_event.py.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import Cancelled, GatewayError, StromError
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses.encoder import event_frame, failure, keepalive
from strom.protocols.openai_responses.meanings import usage_json
from strom.protocols.openai_responses.response import ResponseObject, response_id
from strom.protocols.openai_responses.schema import ENCODE, OBJECT, members_of, object_of, read, single_line
from strom.wire.sse import SseParser

_BEGINNINGS = frozenset((b"response.created", b"response.queued"))
_ENDS = frozenset((b"response.completed", b"response.incomplete", b"response.failed"))
_TEXT = msgspec.json.Decoder(str)


class BackgroundStream:
    """Fed with the bytes a call writes. `response`: the latest Response object; `size_bytes`: of all frames."""

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._parser = SseParser()
        self._output: list[bytes] = []
        self._characters = 0
        """Of output, for an estimate: the call's own count is lost when it is left in the middle."""
        self.identity = response_id("", context.reply_id)
        self._object = ResponseObject(context, self.identity)
        self.frames: list[bytes] = []
        self.size_bytes = 0
        self.ended = False
        self.response = self._object.begun("queued")
        for kind in (b"response.created", b"response.queued"):
            self._add(event_frame(kind, len(self.frames), b'"response":' + self.response))

    def feed(self, data: bytes) -> None:
        """What the call wrote. Raises StromError for bytes that are no events."""
        for frame in self._parser.feed(data):
            if self.ended:
                return
            if frame.data is None:
                self._add(keepalive(len(self.frames)))  # a comment: the call has nothing to say yet
                continue
            try:
                self._take(read(OBJECT, frame.data))
            except ValueError as error:
                raise GatewayError("An event of this response cannot be read.", detail=str(error)) from None

    def fail(self, error: StromError) -> None:
        """The call ended without a terminal event."""
        if not self.ended:
            members = self._object.failed(self._output, self._usage(), error)
            self._end(failure(error, len(self.frames), self._own(members)))

    def cancel(self) -> None:
        """Its stream ends as one that failed, since no event says more; its object says `cancelled`."""
        if not self.ended:
            self.fail(Cancelled("The response was cancelled."))
            self._own(self._object.cancelled(self._output, self._usage()))

    # --- inside ---

    def _take(self, members: dict[str, Raw]) -> None:
        kind = _type_of(members)
        if kind in _BEGINNINGS:
            return
        if kind.endswith(b".delta"):
            self._characters += _length(members.get("delta", Raw()))
        if kind == b"response.output_item.done" and "item" in members:
            self._output.append(single_line(bytes(members["item"])))
        if "response" in members and kind.startswith(b"response."):
            members["response"] = Raw(self._own(members_of(members["response"])))
        members["sequence_number"] = Raw(b"%d" % len(self.frames))
        self._add(b"event: %b\ndata: %b\n\n" % (kind, object_of(members)))
        self.ended = kind in _ENDS

    def _own(self, members: dict[str, Raw]) -> bytes:
        """A Response object as ours; it is the latest from now on."""
        self.response = object_of({**members, "id": Raw(ENCODE(self.identity)), "background": Raw(b"true")})
        return self.response

    def _end(self, frames: bytes) -> None:
        for frame in frames.split(b"\n\n")[:-1]:
            self._add(frame + b"\n\n")
        self.ended = True

    def _add(self, frame: bytes) -> None:
        self.frames.append(_with_id(len(self.frames), frame))
        self.size_bytes += len(self.frames[-1])

    def _usage(self) -> bytes:
        return usage_json(None, self._context.input_estimate, self._characters)


def _type_of(members: dict[str, Raw]) -> bytes:
    """Raises ValueError."""
    return read(_TEXT, members.get("type", Raw(b"null"))).encode().split(b"\n")[0].split(b"\r")[0]


def _length(delta: Raw) -> int:
    try:
        return len(read(_TEXT, delta))
    except ValueError:
        return 0  # of a kind that is no text


def lost_response(response: bytes, error: StromError) -> bytes:
    """The object of a background response whose process ended before it did."""
    failed = {"status": b'"failed"', "error": ENCODE({"code": error.code, "message": error.message})}
    return object_of({**members_of(response), **{name: Raw(value) for name, value in failed.items()}})


def lost_frame(response: bytes, number: int) -> bytes:
    """The terminal event of such a response's stream."""
    return _with_id(number, event_frame(b"response.failed", number, b'"response":' + single_line(response)))


def _with_id(number: int, frame: bytes) -> bytes:
    return b"id: %d\n%b" % (number + 1, frame)


def split_frames(stream: bytes) -> list[bytes]:
    """The frames of a kept stream, one for each number from that of the first."""
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def ended_response(written: bytes) -> bytes:
    """The Response object in the last event of what a call wrote at its end; b"" when there is none.

    `written` may begin anywhere, but ends with that event.
    """
    parser = SseParser()
    frames = [frame for frame in parser.feed(b"\n\n" + written) if frame.data is not None]
    try:
        members = read(OBJECT, frames[-1].data or b"") if frames else {}
        return bytes(members.get("response", Raw())) if _type_of(members) in _ENDS else b""
    except ValueError:
        return b""
