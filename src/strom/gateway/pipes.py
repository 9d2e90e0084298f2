"""From upstream bytes to client bytes: translated streams, and streams folded into a whole reply.

A relay of the protocol itself is a pipe too (protocols/codec.py, Relay). All of them keep `evidence`, never raise, and put
nothing out for an error: the call decides whether it becomes a status, another attempt, or an in-band error (`fail`).
"""

from __future__ import annotations

from typing import Protocol

from strom.core.errors import StromError
from strom.core.events import Event, Failed, TextDelta
from strom.core.evidence import Evidence
from strom.core.fold import Fold
from strom.core.messages import ToolName
from strom.core.tool_names import ToolNameFilter
from strom.protocols.codec import Express, StreamDecoder, StreamEncoder


class StreamPipe(Protocol):
    evidence: Evidence

    def feed(self, data: bytes) -> bytes: ...

    def express(self) -> Express | None:
        """After a feed: the short way for reads that are one more token, if there is one until the next feed."""
        ...

    def finish(self) -> bytes: ...

    def fail(self, error: StromError) -> bytes: ...

    def heartbeat(self) -> bytes: ...


class TranscodePipe:
    """One protocol in, another out. The encoder belongs to the call, so a second attempt goes on with it."""

    __slots__ = ("_decode", "_decoder", "_encode", "_encoder", "_names", "evidence")

    def __init__(self, decoder: StreamDecoder, encoder: StreamEncoder, names: dict[str, ToolName]) -> None:
        self.evidence = Evidence()
        self._decoder = decoder
        self._encoder = encoder
        self._decode = decoder.feed
        self._encode = encoder.encode
        self._names = ToolNameFilter(names) if names else None

    def feed(self, data: bytes) -> bytes:
        events = self._decode(data)
        if len(events) == 1 and type(events[0]) is TextDelta:
            self.evidence.observe_text(events[0].text)  # what nearly every read is; names of tools do not occur in it
            return self._encode(events)
        return self.pass_on(events) if events else b""

    def finish(self) -> bytes:
        return self.pass_on(self._decoder.finish())

    def express(self) -> Express | None:
        expected = self._decoder.expects()
        if expected is None:
            return None
        kind, index, lone = expected
        again = self._encoder.continues(kind, index)
        return None if again is None else (lone, again)

    def pass_on(self, events: list[Event]) -> bytes:
        """Encode events that are already decoded (also those of a whole reply that goes out as a stream)."""
        return self._give(events if self._names is None else self._names.feed(events))

    def _give(self, events: list[Event]) -> bytes:
        """Events under the client's own names of tools."""
        self.evidence.observe(events)
        if self.evidence.error is not None:
            events = [event for event in events if not isinstance(event, Failed)]
        return self._encoder.encode(events)

    def fail(self, error: StromError) -> bytes:
        return self._encoder.fail(error)

    def heartbeat(self) -> bytes:
        return self._encoder.heartbeat()


class FoldPipe:
    """A stream that becomes a whole reply: nothing goes out until its end is proven."""

    __slots__ = ("_decoder", "_names", "evidence", "fold")

    def __init__(self, decoder: StreamDecoder, names: dict[str, ToolName]) -> None:
        self.evidence = Evidence()
        self.fold = Fold()
        self._decoder = decoder
        self._names = ToolNameFilter(names) if names else None

    def feed(self, data: bytes) -> bytes:
        self.take(self._decoder.feed(data))
        return b""

    def finish(self) -> bytes:
        self.take(self._decoder.finish())
        return b""

    def express(self) -> Express | None:
        return None

    def take(self, events: list[Event]) -> None:
        if self._names is not None:
            events = self._names.feed(events)
        self.evidence.observe(events)
        self.fold.feed(events)

    def fail(self, error: StromError) -> bytes:
        return b""

    def heartbeat(self) -> bytes:
        return b""
