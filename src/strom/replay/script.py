"""From a recording and the faults that strike it to what is to be done on the connection. Pure.

Places count bytes of the recorded body, before anything is put in, compressed or framed. The order at one place is: put in,
stall, cut. What would have come behind a cut stays in the script, so that a content-length promises the whole body.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from strom.replay.faults import Fault, FaultSpec
from strom.replay.frames import Frame, frames, token_offset
from strom.replay.recording import Fields, Head, Recording

StopKind = Literal["close", "reset", "half"]
Framing = Literal["chunked", "length", "close"]
_FRAMING_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "content-encoding",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    }
)
_STOPS: dict[str, StopKind] = {"cut": "close", "client_left": "close", "unreachable": "close", "reset": "reset"}
_GZIP = 31


class Send(msgspec.Struct, frozen=True):
    """One write, `delay_s` after the step before it."""

    delay_s: float
    data: bytes


class Pause(msgspec.Struct, frozen=True):
    """`seconds` None: for ever."""

    seconds: float | None


class Stop(msgspec.Struct, frozen=True):
    """The connection ends here, whatever the framing promises."""

    kind: StopKind


Step = Send | Pause | Stop


class Script(msgspec.Struct, frozen=True):
    """`head_delay_s`: from the request to the response's head. `status` 0: no head is sent."""

    status: int
    headers: Fields
    framing: Framing
    steps: tuple[Step, ...]
    head_delay_s: float = 0.0

    @property
    def length(self) -> int:
        """Bytes of the whole body, also of what is behind a stop."""
        return sum(len(step.data) for step in self.steps if isinstance(step, Send))


def write_script(recording: Recording, faults: FaultSpec, rng: random.Random, *, speed: float | None) -> Script:
    """`speed`: how many times faster than it was recorded; None: without any waiting."""
    if recording.head is None:
        return Script(0, (), "close", (Stop("close"),))
    pace = _Pace(speed)
    body = _read_body(recording, recording.head, faults)
    steps = _edited(_sends(recording, pace), _edits(body, faults, rng), _removed(body, faults))
    trickle = next((fault for fault in faults.placed() if fault.name == "trickle"), None)
    if trickle is not None:
        steps = _trickled(steps, body.offset(trickle), trickle.value / 1000)
    headers = tuple(field for field in recording.head.headers if field[0] not in _FRAMING_HEADERS)
    if faults.has("gzip"):
        steps = _compressed(steps)
        headers += (("content-encoding", "gzip"),)
    if recording.ending.kind != "complete":
        steps.append(Stop(_STOPS[recording.ending.kind]))
    head_delay_s = pace.seconds(recording.head.t_ms) + (faults.value("slow-head") or 0.0)
    return Script(recording.head.status, headers, _framing(recording.head), tuple(steps), head_delay_s)


def _read_body(recording: Recording, head: Head, faults: FaultSpec) -> _Body:
    """Frames are looked for only where a fault needs them."""
    data, content_type = recording.body, (head.header("content-type") or "").lower()
    return _Body(data, content_type, frames(data, content_type) if faults else [], _framing(head) == "length")


def _framing(head: Head) -> Framing:
    if (head.header("transfer-encoding") or "").lower() == "chunked":
        return "chunked"
    return "length" if head.header("content-length") is not None else "close"


class _Pace:
    def __init__(self, speed: float | None) -> None:
        self._per_ms = 0.0 if speed is None else 1 / (1000 * speed)

    def seconds(self, milliseconds: float) -> float:
        return max(0.0, milliseconds) * self._per_ms


# -- what is changed where


class _Edit(msgspec.Struct, frozen=True):
    """`step` is put in at this offset of the recorded body; `rank` orders those of one place."""

    offset: int
    rank: int
    step: Step


class _Body(msgspec.Struct, frozen=True):
    data: bytes
    content_type: str
    frames: list[Frame]
    has_length: bool
    """Its client knows where it ends: behind that, nothing can be broken anymore."""

    def offset(self, fault: Fault) -> int:
        place = fault.place
        if place is None:
            return 0
        if place.in_tokens:
            return token_offset(self.frames, place.count, len(self.data))
        return min(place.count, len(self.data))

    def breakable(self, offset: int) -> int:
        """Where it can still be cut or stalled."""
        return min(offset, max(0, len(self.data) - 1)) if self.has_length else offset

    @property
    def terminator(self) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if frame.is_terminator), None)

    def giant(self, size: int) -> bytes:
        """Legal but for its length: a comment in an event stream, white space before a line in JSON lines."""
        if "event-stream" in self.content_type:
            return b":" + b"x" * max(0, size - 3) + b"\n\n"
        return b" " * size


def _edits(body: _Body, faults: FaultSpec, rng: random.Random) -> list[_Edit]:
    edits = []
    for fault in faults.placed():
        at = body.offset(fault)
        match fault.name:
            case "garbage":
                edits.append(_Edit(at, 0, Send(0.0, rng.randbytes(fault.value))))
            case "giant":
                edits.append(_Edit(at, 0, Send(0.0, body.giant(fault.value))))
            case "stall":
                edits.append(_Edit(body.breakable(at), 1, Pause(None if fault.value < 0 else fault.value)))
            case "cut":
                edits.append(_Edit(body.breakable(at), 2, Stop(fault.value)))
            case _:
                pass  # trickle changes the writes, not the bytes
    last = body.terminator
    if last is not None and faults.has("double-terminator"):
        edits.append(_Edit(last.end, 0, Send(0.0, body.data[last.start : last.end])))
    return sorted(edits, key=lambda edit: (edit.offset, edit.rank))


def _removed(body: _Body, faults: FaultSpec) -> tuple[int, int]:
    last = body.terminator if faults.has("no-terminator") else None
    return (0, 0) if last is None else (last.start, last.end)


def _edited(sends: Iterable[Send], edits: list[_Edit], removed: tuple[int, int]) -> list[Step]:
    """A place between two reads comes before the wait for the second one."""
    steps: list[Step] = []
    waiting = deque(edits)
    at = 0
    for send in sends:
        start, end, delay_s = at, at + len(send.data), send.delay_s
        while waiting and waiting[0].offset < end:
            edit = waiting.popleft()
            if edit.offset > start:
                steps.append(Send(delay_s, _without(send.data[start - at : edit.offset - at], start, removed)))
                start, delay_s = edit.offset, 0.0
            steps.append(edit.step)
        steps.append(Send(delay_s, _without(send.data[start - at :], start, removed)))
        at = end
    return steps + [edit.step for edit in waiting]


def _without(data: bytes, start: int, removed: tuple[int, int]) -> bytes:
    low, high = max(start, removed[0]) - start, min(start + len(data), removed[1]) - start
    return data if low >= high else data[:low] + data[high:]


def _sends(recording: Recording, pace: _Pace) -> Iterator[Send]:
    before_ms = recording.head.t_ms if recording.head is not None else 0.0
    for piece in recording.pieces:
        yield Send(pace.seconds(piece.t_ms - before_ms), piece.data)
        before_ms = max(before_ms, piece.t_ms)


def _trickled(steps: list[Step], start: int, gap_s: float) -> list[Step]:
    """Single bytes from that offset on, what was put in included."""
    out: list[Step] = []
    at = 0
    for step in steps:
        if not isinstance(step, Send) or at + len(step.data) <= start:
            out.append(step)
        else:
            whole = step.data[: max(0, start - at)]
            if whole:
                out.append(Send(step.delay_s, whole))
            singles = step.data[len(whole) :]
            first_s = 0.0 if whole else step.delay_s
            out += [Send(gap_s + (0.0 if n else first_s), singles[n : n + 1]) for n in range(len(singles))]
        at += len(step.data) if isinstance(step, Send) else 0
    return out


def _compressed(steps: list[Step]) -> list[Step]:
    """Each write is flushed, so that its text can be read when it arrives."""
    squeeze = zlib.compressobj(wbits=_GZIP)
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Send):
            data = squeeze.compress(step.data) + squeeze.flush(zlib.Z_SYNC_FLUSH)
            out.append(Send(step.delay_s, data))
        else:
            out.append(step)
    return [*out, Send(0.0, squeeze.flush())]
