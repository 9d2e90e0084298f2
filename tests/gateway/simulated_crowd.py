"""Several calls at once on one gateway, from one seed: with limits, queues, strategies, affinity, and clients that come back.

Each call is checked as if it were alone (simulation_checks); besides, no call is told what another's upstream said, limits hold
what was used and no more, queues are empty, and a resumable stream is whole for whoever reads it in parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from typing import Any

import msgspec

from strom.core.access import Budget, KeySettings, Limits
from strom.core.record import CallRecord
from strom.gateway import board as real
from strom.gateway.opening import Opening
from strom.gateway.plan import Endpoint
from strom.gateway.services import CallSettings, Running
from strom.policies.limits import LimitBook
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from strom.server.following import Reader
from strom.server.resumable.exchange import STREAM_ID, ResumableExchange
from strom.server.resumable.streams import KeptStream, StreamLimits, Streams
from strom.shared.limiter import MONEY
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.timers import Clock
from tests.e2e.cuts import REQUESTS, stream_signals
from tests.gateway.rig import PATHS, Board, Rig
from tests.gateway.simulated import Part, make_part, play_step
from tests.gateway.simulated_limits import WatchedLimiter
from tests.gateway.simulation_checks import check, check_rest

SECRET = "sk-crowd"
_ID = re.compile(rb"(?:^|\n)id: (\d+)\n")
MOST_STEPS = 12_000


class AskedBoard(Board):
    """Keeps the books, and tells choices what the real one tells."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self._real = real.Board(lambda: self.now, dice.random)

    def began(self, endpoint: Endpoint) -> None:
        super().began(endpoint)
        self._real.began(endpoint)

    def ended(self, endpoint: Endpoint, error: Any, first_token_ms: float | None) -> None:
        super().ended(endpoint, error, first_token_ms)
        self._real.ended(endpoint, error, first_token_ms)
        assert self._real.in_flight(endpoint) == self.under_way.count(endpoint.id)

    def in_flight(self, endpoint: Endpoint) -> int:
        return self._real.in_flight(endpoint)

    def first_token_ms(self, endpoint: Endpoint) -> float:
        return self._real.first_token_ms(endpoint)

    def ready_at(self, endpoint: Endpoint) -> float | None:
        return self._real.ready_at(endpoint)


class WatchedStreams(Streams):
    """Remembers every stream there was."""

    def __init__(self, clock: Clock, limits: StreamLimits) -> None:
        super().__init__(clock, limits)
        self.ever: dict[str, KeptStream] = {}

    def begin(self, call: Running, opening: Opening, content_type: bytes) -> KeptStream | None:
        stream = super().begin(call, opening, content_type)
        if stream is not None:
            self.ever[stream.info.id] = stream
        return stream


class Call:
    """One client and what it asks. `numbers`: of its upstreams among all; `tries`: the parts in which it reads a stream."""

    def __init__(self, crowd: Crowd, dice: random.Random, number: int) -> None:
        self._crowd = crowd
        self.front = dice.choice(sorted(PATHS))
        self.behind = crowd.behind
        self.continues = crowd.continues
        self.streams = dice.random() < 0.8
        self.asked = self.front == "openai-chat" and self.streams and dice.random() < 0.5
        self.patient = dice.random() < 0.75
        self.resumable = self.streams and dice.random() < 0.4
        self.comes_back = dice.random() < 0.8
        self.numbers: list[int] = []
        self.exchange = self._exchange(dice, number)
        self.tries: list[tuple[int, MemoryExchange]] = [(0, self.exchange)]
        self.lease: Any = None
        self.record: CallRecord

    def _exchange(self, dice: random.Random, number: int) -> MemoryExchange:
        more: dict[str, Any] = {"stream_options": {"include_usage": True}} if self.asked else {}
        turn = f"conversation {dice.randrange(2)}"
        body = {**REQUESTS[self.front], "stream": self.streams, **more}
        body = {**body, "input": turn} if "input" in body else {**body, "messages": [{"role": "user", "content": turn}]}
        headers = [(b"authorization", b"Bearer " + SECRET.encode())] if dice.random() < 0.9 else []
        headers += [(b"x-session-affinity", b"s%d" % (number % 2))] if dice.random() < 0.3 else []
        return MemoryExchange("POST", PATHS[self.front], headers=headers, body=msgspec.json.encode(body))

    @property
    def kept(self) -> KeptStream | None:
        stream_id = self.exchange.header_out(STREAM_ID)
        return self._crowd.resumed.ever[stream_id.decode()] if stream_id is not None else None

    @property
    def reads(self) -> MemoryExchange:
        return self.tries[-1][1]

    @property
    def sent(self) -> list[MemoryUpstream]:
        return [self._crowd.rig.client.sent[number] for number in self.numbers]

    @property
    def parts(self) -> list[Part]:
        return [self._crowd.parts[number] for number in self.numbers]

    def protocol_of(self, attempt: int) -> str:
        return self._crowd.protocol_of(self.numbers[attempt])

    def delivered(self) -> Part | None:
        number = self.numbers[-1]
        part = self._crowd.parts[number]
        return part if self._crowd.played[number] > len(part.reads) + 1 else None


class Crowd:
    """`steps`: of upstreams and clients. Everything random comes from `seed`."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)
        self.dice = dice = random.Random(f"crowd {seed}")
        self.behind = tuple(dice.choice(sorted(PATHS)) for _ in range(dice.choice((1, 2, 3))))
        self.continues = dice.random() < 0.3
        busy: Any = {"max_concurrent": dice.choice((1, 2)), "queue": dice.choice((0, 1, 3)), "queue_timeout_s": 8.0}
        places = dice.choice(({}, busy, {**busy, "order": 1}, {"order": 1}))
        self.board = AskedBoard(dice)
        self.rig = Rig(
            self.behind,
            settings=CallSettings(heartbeat_s=dice.choice((5.0, 1000.0))),
            quirks=Quirks(prefill=dice.random() < 0.5),
            keys=(KeySettings("k", hashlib.sha256(SECRET.encode()).hexdigest(), limits=_limits(dice)),),
            places=places,
            board=self.board,
            continuation=self.continues,
            retries=dice.choice((0, 2)),
            strategy=dice.choice(("weighted", "least-busy", "fastest")),
            affinity=dice.choice(("off", "conversation")),
        )
        self.limiter = self._limit(dice)
        self.resumed = WatchedStreams(self.rig.clock, StreamLimits(20.0, 60.0, dice.choice((3000, 1 << 20)), 1 << 21))
        self.calls: list[Call] = []
        self.parts: list[Part] = []
        self.played: list[int] = []
        self.steps = 0
        self._due = dice.choice((2, 3, 3, 5))
        self._step_s = dice.choice((0.0, 0.3, 3.0))

    def __str__(self) -> str:
        told = [(c.front, c.streams, c.resumable, [p.ending for p in c.parts], c.record.status) for c in self.calls]
        return f"{self.behind} {told}"

    def _limit(self, dice: random.Random) -> WatchedLimiter:
        gateway, clock = self.rig.gateway, self.rig.clock
        models = [("m", (), _limits(dice))] if dice.random() < 0.5 else []
        book = LimitBook(_limits(dice), models, dice.choice((10, 200)))
        gateway.state = msgspec.structs.replace(gateway.state, limits=book)
        watched = WatchedLimiter(gateway.desk.limiter, clock)  # type: ignore[arg-type]  # a Rig's is in memory
        gateway.desk.limiter = watched  # type: ignore[assignment]
        return watched

    def protocol_of(self, number: int) -> str:
        return self.behind[int(self.board.asked[number].removeprefix("e")) - 1]

    # -- playing --

    def play(self) -> None:
        while self.steps < MOST_STEPS and (self._due or not self._over):
            self.steps += 1
            self.board.now = self.rig.clock.now
            if self._due and (not self.calls or self.dice.random() < 0.05):
                self._due -= 1
                self._begin()
            self._upstream_step()
            self._client_step()
            self.rig.clock.advance(self.dice.random() * self._step_s)
        for call in self.calls:
            if call.reads.paused:
                call.reads.resume()
        self.rig.clock.advance(5000)
        self._prepare()

    @property
    def _over(self) -> bool:
        return not self.rig.services.running and all(
            call.reads.state in ("finished", "aborted", "left") for call in self.calls
        )

    def _begin(self) -> None:
        call = Call(self, self.dice, len(self.calls))
        self.calls.append(call)
        services, records = self.rig.services, self.rig.records
        before, leases = set(services.running), len(self.limiter.leases)
        exchange: Any = ResumableExchange(call.exchange, self.resumed) if call.resumable else call.exchange
        known = len(records.all)
        self.rig.gateway.handle_call(exchange, CODECS[call.front])
        new = [running.record for running in services.running - before] or records.all[known:]
        call.record = new[0]
        call.lease = self.limiter.leases[leases] if len(self.limiter.leases) > leases else None

    def _upstream_step(self) -> None:
        self._prepare()
        under_way = [n for n, each in enumerate(self.rig.client.sent) if not each.over and not each.paused]
        if not under_way:
            return
        number = self.dice.choice(under_way)
        upstream, part, step = self.rig.client.sent[number], self.parts[number], self.played[number]
        self.played[number] += 1
        play_step(self.rig, upstream, part, step)

    def _prepare(self) -> None:
        """What each request that was sent meets, and whose it is."""
        for number in range(len(self.parts), len(self.rig.client.sent)):
            part = make_part(self.dice, self.protocol_of(number), f"w{number}x")
            self.parts.append(msgspec.structs.replace(part, mark=f"w{number}x"))
            self.played.append(0)
            record = self.rig.client.sent[number].receiver.call.record  # type: ignore[attr-defined]
            next(call for call in self.calls if call.record is record).numbers.append(number)

    def _client_step(self) -> None:
        call, chance = self.dice.choice(self.calls), self.dice.random()
        exchange = call.reads
        if exchange.state == "left":
            if call.kept is not None and call.comes_back and chance < 0.3:
                self._resume(call, call.kept)
        elif chance < (0.08 if call.resumable else 0.03) and not call.patient:
            exchange.disconnect()
        elif chance > 0.97 and call.streams:
            exchange.resume() if exchange.paused else exchange.pause()
        elif exchange.paused and chance > 0.7:
            exchange.resume()

    def _resume(self, call: Call, kept: KeptStream) -> None:
        if self.resumed.running(kept.info.id) is None:
            call.comes_back = False
            return
        first, exchange = call.tries[-1]
        after = first + len(_frames(call.front, exchange.body_out))
        again = MemoryExchange("GET", f"/v1/streams/{kept.info.id}")
        call.tries.append((after, again))
        Reader(again, kept, after).attach([])

    # -- what must be true --

    def check(self) -> None:
        check_rest(self.rig)
        assert self.resumed.count == 0
        assert self.resumed.size_bytes == 0
        lines = self.rig.services.queues._lines.values()
        assert not any(line.busy or line.waiting for line in lines), "a place is kept"
        assert len(self.rig.records.all) == len(self.calls)
        assert {id(call.record) for call in self.calls} == {id(record) for record in self.rig.records.all}
        asyncio.run(self.limiter.check())
        for call in self.calls:
            self._check_call(call)

    def _check_call(self, call: Call) -> None:
        record = call.record
        foreign = [part.mark for number, part in enumerate(self.parts) if number not in call.numbers]
        told = b"".join(exchange.body_out for _, exchange in call.tries)
        for mark in foreign:
            assert not re.search(rb"(?<![0-9a-z])%b(?![0-9])" % mark.encode(), told), f"told of {mark}, another's"
        assert (record.trace_id in self.rig.records.begun) == bool(call.sent)
        _check_charge(call)
        if call.kept is not None:
            _check_resumed(call, call.kept)
        elif call.sent:
            check(call)
        else:
            assert record.status in ("rejected", "failed", "cancelled")
            assert record.status == "cancelled" or call.exchange.status >= 400 or call.streams


def _limits(dice: random.Random) -> Limits:
    return Limits(
        dice.choice((None, 1, 3, 100)),
        dice.choice((None, None, 60, 1000)),
        dice.choice((None, None, 1, 2)),
        dice.choice((None, None, Budget(0.00001, "EUR"), Budget(5.0, "USD"))),
    )


def _check_charge(call: Call) -> None:
    """What the lease was charged is what the record says."""
    if call.lease is None:
        return
    charge, record = call.lease.charge, call.record
    usage, cost = record.usage, record.cost_estimate
    if record.usage_source == "reported" and usage.input_tokens is not None and usage.output_tokens is not None:
        assert charge.tokens == usage.input_tokens + usage.output_tokens
    if not call.sent and record.status != "cancelled":
        assert charge.tokens == 0
    if charge.money:
        assert cost is not None
        assert abs(charge.money - cost.amount * MONEY) <= 1


def _frames(front: str, body: bytes) -> list[bytes]:
    """The whole frames that have come, without comments."""
    if front == "ollama":
        return [line + b"\n" for line in body.split(b"\n")[:-1]]
    return [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1] if not frame.startswith(b":")]


def _check_resumed(call: Call, kept: KeptStream) -> None:
    assert kept.ended
    record, frames = call.record, kept.frames
    for after, exchange in call.tries:
        came = _frames(call.front, exchange.body_out)
        assert came == frames[after : after + len(came)], "a part is not what the stream is"
        if exchange.state == "finished":
            assert after + len(came) == len(frames), "an end before the end"
    if call.front != "ollama":
        numbers = [int(found[1]) for frame in frames if (found := _ID.match(frame))]
        assert numbers == list(range(1, len(frames) + 1))
    signals = stream_signals(call.front, b"".join(frames))
    assert signals == (int(record.status == "completed"), int(record.status != "completed")), (
        f"{signals} {record.status}"
    )
