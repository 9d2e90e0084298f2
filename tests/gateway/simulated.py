"""Random upstreams and clients around one call, from one seed: the same seed plays the same call.

An upstream gets one `Part` per attempt: bytes in random reads, and an end that fits or does not. What a part proves is known
from how it was made, not from what the gateway says of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from strom.core.errors import ProviderError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Finished,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.fold import fold
from strom.core.record import CallRecord
from strom.core.usage import Usage
from strom.gateway.services import CallSettings
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.types import Headers, TransportFailure
from strom.upstreams.timeouts import SomeTimeouts
from tests.gateway.rig import JSON, PATHS, SSE, Rig

NDJSON = [(b"content-type", b"application/x-ndjson")]
FAILURES = ("connect", "connect_timeout", "tls", "proxy", "closed_before_response", "cut", "protocol", "decoding")
ENDINGS = (
    "whole", "whole", "whole", "bent", "cut", "short", "error", "garbage", "silent", "refused", "unreachable", "html", "json",
)  # fmt: skip
STATUSES = (400, 401, 404, 429, 500, 503, 529)


class Part(msgspec.Struct):
    """What one upstream will do. `proves`: all of it amounts to a complete answer; None: it may, or may not."""

    ending: str
    status: int
    headers: Headers
    reads: list[bytes]
    proves: bool | None
    failure: str = ""
    mark: str = ""


def answer_events(dice: random.Random, mark: str) -> list[Event]:
    """A legal answer. Its texts carry `mark`, so that nobody's text is taken for another's."""
    events: list[Event] = [Started(f"chatcmpl-{mark}", "real-m", 1)]
    calls = 0
    kinds: list[Any] = dice.choice(
        (["text"], ["thinking", "text"], ["text", "tool_call"], ["tool_call", "tool_call"], [])
    )
    for index, kind in enumerate(kinds):
        if kind == "tool_call":
            calls += 1
            events.append(BlockStarted(index, Block("tool_call", f"call_{mark}{calls}", "look_up")))
            events += [ArgumentsDelta(index, piece) for piece in dice.choice((["{}"], ['{"a":', f'"{mark}"', "}"]))]
        else:
            delta = TextDelta if kind == "text" else ThinkingDelta
            events.append(BlockStarted(index, Block(kind)))
            events += [delta(index, f"{mark}{n} ä\u2028 ") for n in range(dice.randint(1, 6))]
        events.append(BlockEnded(index))
    if dice.random() < 0.7:
        events.append(UsageReported(Usage(9, 3)))
    events.append(Finished("tool_calls" if calls else dice.choice(("stop", "length")), raw="stop"))
    return [*events, Completed()]


def frames_of(protocol: str, events: list[Event], *, error: bool) -> list[bytes]:
    """The stream as its protocol writes it, cut into frames; ends in an error if one is wanted."""
    context = ReplyContext("r", "r", "real-m", 1, "2026-01-01T00:00:00Z", include_usage=True)
    encoder = CODECS[protocol].encoder(context)
    data = encoder.encode(events[:-3] if error else events)
    if error:
        data += encoder.fail(ProviderError("the model fell over"))
    separator = b"\n" if protocol == "ollama" else b"\n\n"
    return [frame + separator for frame in data.split(separator)[:-1]]


def make_part(dice: random.Random, protocol: str, mark: str) -> Part:
    ending = dice.choice(ENDINGS)
    events = answer_events(dice, mark)
    head = NDJSON if protocol == "ollama" else SSE
    match ending:
        case "refused":
            body = dice.choice((b'{"error":{"message":"busy"}}', b"<html>busy</html>", b""))
            return Part(ending, dice.choice(STATUSES), JSON, [body], proves=False)
        case "html":
            return Part(ending, 200, [(b"content-type", b"text/html")], [b"<html>busy</html>"], proves=False)
        case "unreachable":
            return Part(ending, 0, [], [], proves=False, failure=dice.choice(FAILURES))
        case "json":
            body = CODECS[protocol].encode_reply(fold(events), ReplyContext("r", "r", "real-m", 1))
            return Part(ending, 200, JSON, cut_up(dice, body), proves=True)
    frames = frames_of(protocol, events, error=ending == "error")
    if ending in ("short", "cut", "silent"):
        frames = frames[: dice.randrange(len(frames))]
    elif ending == "bent":
        frames = [bent(dice, frame) if dice.random() < 0.2 else frame for frame in frames]
    elif ending == "garbage":
        frames.insert(dice.randrange(len(frames)), b"{bad\n" if protocol == "ollama" else b"data: {bad\n\n")
    reads = cut_up(dice, b"".join(frames))
    proves = None if ending == "bent" else ending == "whole"
    return Part(ending, 200, head, reads, proves, failure="cut" if ending == "cut" else "")


def bent(dice: random.Random, frame: bytes) -> bytes:
    """The frame with one member, somewhere in its JSON, gone or turned into something else."""
    before, brace, rest = frame.partition(b"{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return frame  # [DONE]
    places = [(holder, key) for holder in holders(value) for key in holder]
    holder, key = dice.choice(places)
    if dice.random() < 0.4:
        del holder[key]
    else:
        holder[key] = dice.choice((None, 0, 7, "", "x", [], {}, True, "w9x", [{}], 1.5))
    separator = frame[len(frame.rstrip(b"\n")) :]
    return before + json.dumps(value).encode() + separator


def holders(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a JSON value."""
    if isinstance(value, dict) and value:
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from holders(inner)


def cut_up(dice: random.Random, data: bytes) -> list[bytes]:
    size = dice.choice((1, 7, 60, 400, 100_000))
    return [data[at : at + size] for at in range(0, len(data), size)]


def play_step(rig: Rig, upstream: MemoryUpstream, part: Part, step: int) -> None:
    """The upstream does the next thing of its part."""
    if step == 0 and part.status:
        upstream.response(part.status, part.headers)
    elif 1 <= step <= len(part.reads) and part.status:
        upstream.read(part.reads[step - 1])
    elif part.failure:
        upstream.fail(TransportFailure(part.failure, "", sent=True))  # type: ignore[arg-type]
    elif part.ending == "silent":
        rig.clock.advance(7)
    else:
        upstream.end()


class Simulation:
    """One call, played to its end. Everything random comes from `seed`."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # the gateway draws its delays from there
        self.dice = dice = random.Random(seed)
        self.front = dice.choice(sorted(PATHS))
        self.behind = tuple(dice.choice(sorted(PATHS)) for _ in range(dice.choice((1, 1, 2, 3))))
        self.streams = dice.random() < 0.75
        self.asked = self.front == "openai-chat" and self.streams and dice.random() < 0.5
        reasoning: Any = dice.choice(("native", "native", "text", "drop"))
        settings = CallSettings(heartbeat_s=dice.choice((5.0, 15.0, 1000.0)), reasoning=reasoning)
        quirks = Quirks(always_stream=dice.random() < 0.1, never_stream=dice.random() < 0.1)
        self.continues = dice.random() < 0.3
        timeouts = SomeTimeouts(
            total_s=dice.choice((None, None, 50.0, 400.0)), min_chars_per_s=dice.choice((0.0, 0.0, 1.0))
        )
        self.rig = Rig(
            self.behind,
            settings=settings,
            quirks=msgspec.structs.replace(quirks, prefill=dice.random() < 0.5),
            continuation=self.continues,
            retries=dice.choice((0, 0, 2)),
            timeouts=timeouts,
        )
        self.parts: list[Part] = []
        """What each attempt met, in their order."""
        self.patient = dice.random() < 0.75
        """The client stays to the end."""
        self.step_s = dice.choice((0.0, 0.0, 0.5, 4.0, 20.0))
        self.exchange: MemoryExchange = self._call()
        self._played: list[int] = []
        self.steps = 0

    def _call(self) -> MemoryExchange:
        more: dict[str, Any] = {"stream_options": {"include_usage": True}} if self.asked else {}
        return self.rig.call(self.front, stream=self.streams, **more)

    @property
    def record(self) -> CallRecord:
        return self.rig.record

    @property
    def sent(self) -> list[MemoryUpstream]:
        return self.rig.client.sent

    def protocol_of(self, attempt: int) -> str:
        return self.behind[int(self.rig.board.asked[attempt].removeprefix("e")) - 1]

    @property
    def over(self) -> bool:
        return self.exchange.state in ("finished", "aborted", "left")

    def play(self, leaves_at: int | None = None) -> None:
        """`leaves_at`: the client leaves after so many steps, whatever else it would have done."""
        for _ in range(6000):
            if self.over:
                break
            self._upstream_step()
            self._client_step()
            self.steps += 1
            if self.steps == leaves_at:
                self.exchange.disconnect()
            self.rig.clock.advance(self.dice.random() * self.step_s)
        if self.exchange.paused:
            self.exchange.resume()
        self.rig.clock.advance(5000)
        self._prepare()

    def delivered(self) -> Part | None:
        """The last attempt's part, if all of it has come."""
        number = len(self.parts) - 1
        return self.parts[number] if number >= 0 and self._played[number] > len(self.parts[number].reads) + 1 else None

    def _upstream_step(self) -> None:
        number = len(self.rig.client.sent) - 1
        if number < 0:
            return
        self._prepare()
        upstream, part = self.rig.upstream(number), self.parts[number]
        step = self._played[number]
        if upstream.over or upstream.paused:
            return
        self._played[number] += 1
        play_step(self.rig, upstream, part, step)

    def _prepare(self) -> None:
        """What each attempt that was sent meets."""
        for attempt in range(len(self.parts), len(self.rig.client.sent)):
            part = make_part(self.dice, self.protocol_of(attempt), f"w{attempt}x")
            self.parts.append(msgspec.structs.replace(part, mark=f"w{attempt}x"))
            self._played.append(0)

    def _client_step(self) -> None:
        chance = self.dice.random()
        if not self.patient and chance < 0.03:
            self.exchange.disconnect()
        elif chance > 0.97 and self.streams:
            self.exchange.resume() if self.exchange.paused else self.exchange.pause()
        elif self.exchange.paused and chance > 0.7:
            self.exchange.resume()
