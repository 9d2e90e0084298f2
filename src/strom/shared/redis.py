"""Limits that all processes and replicas share, in Redis: one script call for each decision.

    reserve ─▶ waiting ─▶ one pipeline at a time carries all that came together ─▶ then
    settle  ─▶ the same pipeline, and nobody waits for it

Invariants: a decision takes one round trip, at most `timeout_s`; what Redis does not answer in that time counts as away, and so
do all decisions from then until it answers a ping again (backoff from 0.1 s to 5 s). While it is away each decision is made
at once: refused ("closed"), or by this process alone with its share of every limit ("local"). Slots of concurrent calls are
leases, renewed while the call runs: those of a killed process come back after `lease_s`. Money that could not be charged is
kept and charged when Redis is back, or may write again; money whose settlement was sent and not answered in time is not sent
again. A Redis that comes back empty is told the last sums that were seen.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from strom.shared import redis_scripts
from strom.shared.limiter import NOTHING, Calendar, Charge, Demand, Level, Reading, Refusal, Scope, Then, longest
from strom.shared.memory import MAX_IDLE, MemoryLimiter

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

LOG = logging.getLogger("strom.limits")
AWAY_WAIT_MS = 1000
"""When to come back after a refusal for want of Redis."""
MAX_BATCH = 200
MAX_WAITING = 20_000
_SLOWEST_RETRY_S = 5.0
_RATE_TTL_MS = 600_000
_DAY_MS = 86_400_000


class RedisSettings(msgspec.Struct, frozen=True):
    """`shares`: by how many processes limits are divided while Redis is away."""

    url: str
    on_failure: Literal["closed", "local"] = "closed"
    shares: int = 1
    timeout_s: float = 0.25
    lease_s: float = 60.0
    prefix: str = "strom"


class _Command(msgspec.Struct, frozen=True):
    """`answer` None: nobody waits for it."""

    script: str
    keys: tuple[str, ...]
    arguments: tuple[Any, ...]
    answer: Callable[[list[int] | None], None] | None = None
    """Told what the script gave; None: Redis is away."""
    money: tuple[tuple[Scope, int, int], ...] = ()
    """What is lost with it: scope, period and amount."""


class RedisLimiter:
    """A Limiter. `start` and `close` inside the loop that it is used in. `now_ms`: for tests; else Redis' own time."""

    def __init__(
        self,
        settings: RedisSettings,
        wall: Callable[[], float] = time.time,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings = settings
        self._calendar = Calendar(wall)
        self._now_ms = now_ms
        self._connection: AbstractConnection = _connection(settings)
        self._waiting: deque[_Command] = deque()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._away = False
        self._refusing = False
        """It answers errors."""
        self._wall = wall
        self._local = MemoryLimiter(wall=wall)
        self._seen: dict[Scope, tuple[int, int]] = {}
        """Period and money, as Redis last told them."""
        self._owed: dict[tuple[Scope, int], int] = {}
        self._leases: dict[str, tuple[Scope, ...]] = {}
        self._process = secrets.token_hex(8)
        self._made = 0

    @property
    def away(self) -> bool:
        """Redis did not answer, and has not answered a ping since."""
        return self._away

    def start(self) -> None:
        """Never fails for Redis' sake: it may come later."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._carry()), loop.create_task(self._keep_leases())]

    async def close(self) -> None:
        """Settlements that wait are sent, decisions are made without Redis."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        left = [command for command in self._waiting if command.answer is None]
        for command in list(self._waiting):
            if command.answer is not None:
                command.answer(None)
        if left and not self._away:
            await self._send(left)
        await self._connection.disconnect()

    # -- decisions --

    def reserve(self, demand: Demand, then: Then) -> None:
        if self._away or len(self._waiting) >= MAX_WAITING:
            self._decide_alone(demand, then)
            return
        self._made += 1
        lease_id = f"{self._process}:{self._made}"
        arguments: list[Any] = [self._now_ms(), lease_id, int(self._settings.lease_s * 1000)]
        for scope in demand.scopes:
            arguments += (
                scope.requests,
                scope.tokens,
                scope.cost(demand) if scope.tokens else 0,
                scope.concurrent,
                scope.budget,
                self._calendar.start(scope.per) if scope.budget else 0,
                self._ttl_ms(scope),
            )
        answer = _Answer(self, demand, lease_id, then)
        self._add(_Command(redis_scripts.RESERVE, self._keys(demand.scopes), tuple(arguments), answer.take))

    def answered(self, demand: Demand, lease_id: str, found: list[int]) -> RedisLease | Refusal:
        readings = tuple([(int(found[at]), int(found[at + 1])) for at in range(1, len(found), 4)])
        for at, scope in enumerate(demand.scopes):
            if scope.budget:
                self._see(scope, self._calendar.start(scope.per), int(found[4 * at + 4]))
        if not found[0]:
            if any(scope.concurrent for scope in demand.scopes):
                self._leases[lease_id] = demand.scopes
            return RedisLease(self, demand, lease_id, readings)
        waits = []
        for at, scope in enumerate(demand.scopes):
            level = _level(found, 4 * at + 1)
            for wait_ms, kind in level.waits(scope, scope.cost(demand), self._calendar.left_ms(scope.per)):
                waits.append((wait_ms, kind, scope))
        return longest(waits, readings)

    def settled(self, demand: Demand, lease_id: str, charge: Charge) -> None:
        self._leases.pop(lease_id, None)
        arguments: list[Any] = [self._now_ms(), lease_id]
        money = []
        for scope in demand.scopes:
            change = charge.tokens - scope.cost(demand) if scope.tokens else 0
            amount = charge.money if scope.budget and charge.currency == scope.currency else 0
            period = self._calendar.start(scope.per) if scope.budget else 0
            arguments += (scope.requests, scope.tokens, change, amount, period, self._ttl_ms(scope))
            if amount:
                money.append((scope, period, amount))
        command = _Command(redis_scripts.SETTLE, self._keys(demand.scopes), tuple(arguments), money=tuple(money))
        if self._away:
            self._owe(command)
        else:
            self._add(command)

    def seed(self, scope: Scope, money: int) -> None:
        period = self._calendar.start(scope.per)
        self._see(scope, period, money)
        self._add_seed(scope, period, money)

    def _see(self, scope: Scope, period: int, money: int) -> None:
        if len(self._seen) >= MAX_IDLE and scope not in self._seen:
            self._seen.clear()
        self._seen[scope] = (period, money)

    def _add_seed(self, scope: Scope, period: int, money: int) -> None:
        key = self._keys((scope,))[0]
        self._add(_Command(redis_scripts.SEED, (key,), (period, money, self._ttl_ms(scope))))

    async def look(self, scopes: Sequence[Scope]) -> list[Level | None]:
        if self._away or not scopes:
            return [None] * len(scopes)
        answered: asyncio.Future[list[int] | None] = asyncio.get_running_loop().create_future()

        def take(found: list[int] | None) -> None:
            if not answered.done():
                answered.set_result(found)

        arguments: list[Any] = [self._now_ms()]
        for scope in scopes:
            period = self._calendar.start(scope.per) if scope.budget else 0
            arguments += (scope.requests, scope.tokens, period)
        self._add(_Command(redis_scripts.LOOK, self._keys(tuple(scopes)), tuple(arguments), take))
        found = await answered
        return [None if found is None else _level(found, 4 * at) for at in range(len(scopes))]

    # -- without Redis --

    def _decide_alone(self, demand: Demand, then: Then) -> None:
        if self._settings.on_failure == "closed":
            then(Refusal("unavailable", demand.scopes[0], AWAY_WAIT_MS))
            return
        shares = msgspec.structs.replace(demand, scopes=tuple(map(self._share, demand.scopes)))
        self._local.reserve(shares, lambda outcome: then(self._noting(outcome, demand)))

    def _noting(self, outcome: Any, demand: Demand) -> Any:
        return outcome if isinstance(outcome, Refusal) else _AloneLease(self, outcome, demand)

    def _share(self, scope: Scope) -> Scope:
        """At least one of everything, so that "local" never shuts a key out."""
        shares = self._settings.shares

        def part(limit: int) -> int:
            return max(1, limit // shares) if limit else 0

        return msgspec.structs.replace(
            scope,
            requests=part(scope.requests),
            tokens=part(scope.tokens),
            concurrent=part(scope.concurrent),
            budget=part(scope.budget),
        )

    def owe(self, scope: Scope, money: int) -> None:
        """Charged when Redis is back."""
        place = (scope, self._calendar.start(scope.per))
        self._owed[place] = self._owed.get(place, 0) + money

    def _owe(self, command: _Command) -> None:
        for scope, period, amount in command.money:
            self._owed[scope, period] = self._owed.get((scope, period), 0) + amount

    def _pay(self) -> None:
        """What Redis may have forgotten, then what it has not heard of."""
        for scope, (period, money) in self._seen.items():
            self._add_seed(scope, period, money)
        for (scope, period), amount in self._owed.items():
            arguments = (self._now_ms(), "", scope.requests, scope.tokens, 0, amount, period, self._ttl_ms(scope))
            owed = ((scope, period, amount),)
            self._add(_Command(redis_scripts.SETTLE, self._keys((scope,)), arguments, money=owed))
        self._owed.clear()

    # -- the way to Redis --

    def _add(self, command: _Command) -> None:
        self._waiting.append(command)
        self._wake.set()

    async def _carry(self) -> None:
        """One pipeline at a time, with all that came meanwhile."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
            answers = await self._send(batch)
            for command, found in zip(batch, answers, strict=True):
                if command.answer is not None:
                    command.answer(found)
            if self._away:
                self._give_up_waiting()
                await self._until_back()

    async def _send(self, batch: list[_Command]) -> list[list[int] | None]:
        from redis.exceptions import NoScriptError, RedisError
        from redis.exceptions import TimeoutError as RedisTimeout

        try:
            async with asyncio.timeout(self._settings.timeout_s):
                found = await self._execute(batch)
                if any(isinstance(each, NoScriptError) for each in found):
                    await self._load()
                    again = [at for at, each in enumerate(found) if isinstance(each, NoScriptError)]
                    for at, each in zip(again, await self._execute([batch[at] for at in again]), strict=True):
                        found[at] = each
        except (RedisError, OSError, TimeoutError) as error:
            self._lose(error)
            await self._connection.disconnect(nowait=True)  # answers that come late are no answers to the next
            if not isinstance(error, TimeoutError | RedisTimeout):  # those may yet be executed
                for command in batch:
                    self._owe(command)
            return [None] * len(batch)
        self._take_back(batch, [each if isinstance(each, RedisError) else None for each in found])
        return [None if isinstance(each, RedisError) else each for each in found]

    def _take_back(self, batch: list[_Command], refusals: Sequence[Exception | None]) -> None:
        """A Redis that answers, but may not write (a replica, one whose memory is full): what it did not take is owed, and
        charged with the first batch that it takes as a whole."""
        refused = [each for each in refusals if each is not None]
        if refused and not self._refusing:
            LOG.error(
                "Redis refuses decisions on limits, and such calls are decided as if it were away: %s", refused[0]
            )
        elif self._refusing and not refused:
            LOG.warning("Redis takes decisions on limits again")
        for command, error in zip(batch, refusals, strict=True):
            if error is not None:
                self._owe(command)
        self._refusing = bool(refused)
        if self._owed and not refused:
            self._pay()

    async def _execute(self, batch: list[_Command]) -> list[Any]:
        """All in one write. The connection's own methods, since a pipeline object costs as much as all the rest."""
        from redis.exceptions import ResponseError

        connection = self._connection
        packed = []
        for command in batch:
            sha = _SHA[command.script]
            packed += connection.pack_command("EVALSHA", sha, len(command.keys), *command.keys, *command.arguments)
        await connection.send_packed_command(packed, check_health=False)
        found: list[Any] = []
        for _ in batch:
            try:
                found.append(await connection.read_response())
            except ResponseError as error:
                found.append(error)
        return found

    async def _load(self) -> None:
        for script in _SHA:
            await self._connection.send_command("SCRIPT LOAD", script, check_health=False)
            await self._connection.read_response()

    def _lose(self, error: BaseException) -> None:
        if not self._away:
            self._local = MemoryLimiter(wall=self._wall)
            for scope, (period, money) in self._seen.items():
                if period == self._calendar.start(scope.per):
                    self._local.seed(self._share(scope), money // self._settings.shares)
            what = "calls with limits are refused" if self._settings.on_failure == "closed" else "limits are local"
            LOG.warning("Redis does not answer (%s): %s until it does", type(error).__name__, what)
        self._away = True

    def _give_up_waiting(self) -> None:
        while self._waiting:
            command = self._waiting.popleft()
            if command.answer is not None:
                command.answer(None)
            else:
                self._owe(command)

    async def _until_back(self) -> None:
        from redis.exceptions import RedisError

        pause_s = 0.1
        while True:
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    await self._connection.send_command("PING", check_health=False)
                    await self._connection.read_response()
                break
            except (RedisError, OSError, TimeoutError):
                await self._connection.disconnect(nowait=True)
                pause_s = min(pause_s * 2, _SLOWEST_RETRY_S)
        LOG.warning("Redis answers again")
        self._away = False
        self._pay()

    async def _keep_leases(self) -> None:
        """Running calls keep their slots for as long as this process lives."""
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            by_scope: dict[str, list[str]] = {}
            for lease_id, scopes in self._leases.items():
                for scope in scopes:
                    if scope.concurrent:
                        by_scope.setdefault(self._keys((scope,))[1], []).append(lease_id)
            if not self._away:
                lease_ms = int(self._settings.lease_s * 1000)
                for key, leases in by_scope.items():
                    self._add(_Command(redis_scripts.RENEW, (key,), (self._now_ms(), lease_ms, *leases)))

    def _keys(self, scopes: tuple[Scope, ...]) -> tuple[str, ...]:
        tag = f"{{{self._settings.prefix}}}:limits:"
        return tuple([key for scope in scopes for key in (tag + scope.id, f"{tag}{scope.id}:running")])

    def _ttl_ms(self, scope: Scope) -> int:
        return self._calendar.left_ms(scope.per) + _DAY_MS if scope.budget else _RATE_TTL_MS


class _Answer:
    """Carries a decision from Redis to whoever waits for it."""

    __slots__ = ("_demand", "_lease_id", "_limiter", "_then")

    def __init__(self, limiter: RedisLimiter, demand: Demand, lease_id: str, then: Then) -> None:
        self._limiter = limiter
        self._demand = demand
        self._lease_id = lease_id
        self._then = then

    def take(self, found: list[int] | None) -> None:
        if found is None:
            self._limiter._decide_alone(self._demand, self._then)
        else:
            self._then(self._limiter.answered(self._demand, self._lease_id, found))


class RedisLease:
    __slots__ = ("_demand", "_lease_id", "_limiter", "readings")

    def __init__(self, limiter: RedisLimiter, demand: Demand, lease_id: str, readings: tuple[Reading, ...]) -> None:
        self._limiter: RedisLimiter | None = limiter
        self._demand = demand
        self._lease_id = lease_id
        self.readings = readings

    def settle(self, charge: Charge = NOTHING) -> None:
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter.settled(self._demand, self._lease_id, charge)


class _AloneLease:
    """Given while Redis was away: its money is owed to Redis."""

    __slots__ = ("_demand", "_inner", "_limiter", "readings")

    def __init__(self, limiter: RedisLimiter, inner: Any, demand: Demand) -> None:
        self._limiter: RedisLimiter | None = limiter
        self._inner = inner
        self._demand = demand
        self.readings: tuple[Reading, ...] = inner.readings

    def settle(self, charge: Charge = NOTHING) -> None:
        limiter, self._limiter = self._limiter, None
        if limiter is None:
            return
        self._inner.settle(charge)
        for scope in self._demand.scopes:
            if scope.budget and charge.money and charge.currency == scope.currency:
                limiter.owe(scope, charge.money)


_SHA = {
    script: hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()  # Redis names scripts by it
    for script in redis_scripts.ALL
}


def _level(found: list[int], at: int) -> Level:
    level = Level()
    level.requests, level.tokens, level.taken, level.spent = map(int, found[at : at + 4])
    return level


def _connection(settings: RedisSettings) -> AbstractConnection:
    """Not yet connected: it connects with the first command that is sent. Time-outs are ours, over whole batches."""
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    client = Redis.from_url(
        settings.url,
        retry=Retry(NoBackoff(), 0),  # a script that was sent may have run: only we know what may be sent again
        socket_timeout=None,
        socket_connect_timeout=settings.timeout_s,
        decode_responses=False,
    )
    made: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    return made
