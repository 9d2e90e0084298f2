"""The resumable streams of this process.

KeptStream   one: what its call writes, numbered, and the clients that read along. A lost client changes nothing until the grace
             time is over; then, by a cancellation, or by breaking its bound, the call is ended with an error in the stream
Streams      all of them: found by their owner alone, bounded in bytes together, forgotten when their retention is over

Invariants: a call ends by itself or by `stop`, so that its stream always says how it ended; what is kept is bounded, since a
stream that has ended makes room and one that runs is ended when there is none; nothing is kept of a stream that is forgotten.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from strom.core.errors import Cancelled, GatewayError, StromError
from strom.gateway.opening import Opening
from strom.gateway.services import Running
from strom.server.following import Reader
from strom.server.resumable.numbering import Numbering, numbering
from strom.shared.streams import StreamInfo, new_home, new_id
from strom.transport.timers import Clock, Handle
from strom.transport.types import Headers

STREAM_BYTES = 4096
"""What a stream costs besides its frames."""
FRAME_BYTES = 64
"""What a frame costs besides its bytes."""


class StreamLimits(msgspec.Struct, frozen=True):
    """[server] resume_…"""

    grace_s: float = 60.0
    retention_s: float = 300.0
    buffer_bytes: int = 16_777_216
    total_bytes: int = 268_435_456


class Mirror(Protocol):
    """A copy of streams that other replicas read. Everything is done later, in the order in which it is asked for."""

    def announce(self, info: StreamInfo) -> None: ...

    def append(self, stream_id: str, first: int, frames: list[bytes]) -> None:
        """`first`: the number of the first of them."""
        ...

    def end(self, stream_id: str, count: int, *, broken: bool) -> None: ...

    def forget(self, stream_id: str) -> None: ...


class KeptStream:
    """`Followed` by readers, and the `Sink` of its call. `mirror` None: it is in the memory of this process alone."""

    def __init__(self, streams: Streams, info: StreamInfo, call: Running, mirror: Mirror | None) -> None:
        self.info = info
        self.frames: list[bytes] = []
        self.ended = False
        self.broken = False
        self.size_bytes = STREAM_BYTES
        self.mirror = mirror
        self._streams = streams
        self._call: Running | None = call
        self._most_bytes = streams.limits.buffer_bytes
        self._numbering: Numbering = numbering(info.content_type.encode(), self._most_bytes)
        self._number = self._numbering.feed
        self._readers: list[Reader] = []
        self._elsewhere_until = 0.0
        self._timer: Handle | None = None
        if mirror is not None:
            mirror.announce(info)

    @property
    def read_here(self) -> bool:
        return bool(self._readers)

    # -- Followed --

    def joined(self, reader: Reader) -> None:
        self._readers.append(reader)

    def left(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            if not self._readers and not self.ended:
                self._wait()

    def read_elsewhere(self) -> None:
        """A client reads it at another replica, which says so from time to time."""
        self._elsewhere_until = self._streams.clock.time() + self._streams.limits.grace_s

    # -- Sink --

    def take(self, data: bytes) -> None:
        try:
            frames, remarks = self._number(data)
        except StromError as error:
            self.stop(error)
            return
        if remarks:
            for reader in self._readers.copy():
                reader.remark(remarks)
        if frames:
            self._keep(frames)
            for reader in self._readers.copy():
                reader.pump()
            if self.size_bytes > self._most_bytes or self._streams.is_full:
                self._outgrow()

    def end(self, data: bytes) -> None:
        try:
            frames, remarks = self._number(data) if data else ([], b"")
        except StromError:  # an endless frame has ended the call: what there is of it is the last one
            frames, remarks = [], b""
        for reader in self._readers.copy() if remarks else ():
            reader.remark(remarks)
        self._keep(frames + self._numbering.finish())
        self._settle()

    def cut(self) -> None:
        self.broken = True
        self._settle()

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """No call does so after its head."""
        self.cut()

    def _outgrow(self) -> None:
        if self._call is not None and not self._streams.bears(self):
            message = "This stream is longer than a resumable one may be ([server] resume_buffer_bytes)."
            self.stop(GatewayError(message, code="resume_buffer_full"))

    # -- ends that are not the call's own --

    def stop(self, error: StromError) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.stop(error)

    def forget(self) -> None:
        """Whoever still reads is cut off."""
        self._disarm()
        if self.mirror is not None:
            self.mirror.forget(self.info.id)
        for reader in self._readers.copy():
            reader.cut()

    # -- inside --

    def _keep(self, frames: list[bytes]) -> None:
        if not frames:
            return
        size_bytes = len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
        size_bytes += FRAME_BYTES * len(frames)
        if self.mirror is not None:
            self.mirror.append(self.info.id, len(self.frames) + 1, frames)
        self.frames += frames
        self.size_bytes += size_bytes
        self._streams.grown(self, size_bytes)

    def _settle(self) -> None:
        self._call = None
        self.ended = True
        self._disarm()
        if self.mirror is not None:
            self.mirror.end(self.info.id, len(self.frames), broken=self.broken)
        for reader in self._readers.copy():
            reader.pump()
        self._streams.settled(self)

    def retain(self, seconds: float) -> None:
        clock = self._streams.clock
        self._timer = clock.call_at(clock.time() + seconds, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._streams.forget(self)

    def _wait(self) -> None:
        """Nobody reads: somebody may come back for it."""
        self._disarm()
        clock = self._streams.clock
        due = max(clock.time() + self._streams.limits.grace_s, self._elsewhere_until)
        self._timer = clock.call_at(due, self._lapse)

    def _lapse(self) -> None:
        self._timer = None
        if self._readers or self.ended:
            return
        now, clock = self._streams.clock.time(), self._streams.clock
        if self._elsewhere_until > now:
            self._timer = clock.call_at(self._elsewhere_until, self._lapse)
            return
        seconds = self._streams.limits.grace_s
        self.stop(Cancelled(f"The client left and did not resume its stream within {seconds:g} s.", code="client_left"))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Streams:
    """`home`: the name of this process."""

    def __init__(self, clock: Clock, limits: StreamLimits) -> None:
        self.clock = clock
        self.limits = limits
        self.home = new_home()
        self.mirror: Mirror | None = None
        self._streams: dict[str, KeptStream] = {}
        self._ended: dict[str, KeptStream] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def is_full(self) -> bool:
        return self._size_bytes > self.limits.total_bytes

    @property
    def count(self) -> int:
        return len(self._streams)

    def begin(self, call: Running, opening: Opening, content_type: bytes) -> KeptStream | None:
        """None: there is no room for another one."""
        self._make_room(STREAM_BYTES)
        if self._size_bytes + STREAM_BYTES > self.limits.total_bytes:
            return None
        record, protocol = opening.record, opening.incoming.codec.name
        stream_id = new_id(protocol, self.home)
        info = StreamInfo(stream_id, record.key_name or "", protocol, content_type.decode("latin-1"), record.trace_id)
        stream = KeptStream(self, info, call, self.mirror if may_leave_memory(opening) else None)
        self._streams[stream_id] = stream
        self._size_bytes += stream.size_bytes
        return stream

    def find(self, stream_id: str, owner: str) -> KeptStream | None:
        stream = self._streams.get(stream_id)
        return stream if stream is not None and stream.info.owner == owner else None

    def running(self, stream_id: str) -> KeptStream | None:
        """For another replica, which has looked at the owner."""
        return self._streams.get(stream_id)

    def cancel(self, stream: KeptStream) -> None:
        """The upstream is closed at once, readers are told, and nothing is kept."""
        stream.stop(Cancelled("The client cancelled the stream."))
        self.forget(stream)

    def forget(self, stream: KeptStream) -> None:
        if self._streams.pop(stream.info.id, None) is None:
            return
        self._ended.pop(stream.info.id, None)
        self._size_bytes -= stream.size_bytes
        stream.forget()

    def close(self) -> None:
        """The process ends: calls are stopped by then."""
        for stream in list(self._streams.values()):
            stream.mirror = None if stream.ended else stream.mirror  # copies of ended ones outlive the process
            self.forget(stream)

    # -- told by streams --

    def grown(self, stream: KeptStream, size_bytes: int) -> None:
        if stream.info.id in self._streams:
            self._size_bytes += size_bytes

    def bears(self, stream: KeptStream) -> bool:
        """Whether it may go on growing."""
        self._make_room(0)
        return stream.size_bytes <= self.limits.buffer_bytes and self._size_bytes <= self.limits.total_bytes

    def settled(self, stream: KeptStream) -> None:
        if stream.info.id in self._streams:
            self._ended[stream.info.id] = stream
            stream.retain(self.limits.retention_s)

    def _make_room(self, size_bytes: int) -> None:
        """Streams that have ended go, the oldest end first; those that are being read last."""
        if self._size_bytes + size_bytes <= self.limits.total_bytes:
            return
        waiting = sorted(self._ended.values(), key=lambda stream: stream.read_here)
        for stream in waiting:
            if self._size_bytes + size_bytes <= self.limits.total_bytes:
                return
            self.forget(stream)


def may_leave_memory(opening: Opening) -> bool:
    """Whether content may be copied to where it outlives the process. A provider that keeps nothing is chosen so that
    nothing is kept: what it may answer stays in memory."""
    return not any(_keeps_nothing(endpoint.upstream.retention) for endpoint in opening.plan.endpoints)


def _keeps_nothing(retention: str | None) -> bool:
    return retention is not None and retention.strip().lower() == "none"
