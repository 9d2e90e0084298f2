"""The replay server: recordings as a backend, in their own protocol and paths, with their own timing, and with faults.

    async with ReplayServer(load("plain.jsonl"), ReplayOptions(speed=None, faults="cut@120=reset")) as server:
        ... server.url ...

A request may bring its own faults, in the header `x-strom-fault` or a query parameter of that name: they replace the
server's. Random bytes come from a generator seeded by `seed` and the number of the request: a run can be had again.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qsl, urlencode

import msgspec

from strom.replay.answers import error_answer, fault_answer, small_answer
from strom.replay.connection import RefusedHandshake, ReplayConnection
from strom.replay.faults import BadFault, FaultSpec, parse_faults
from strom.replay.recording import Asked, Recording
from strom.replay.script import Script, write_script
from strom.replay.shelf import Shelf

FAULT_HEADER = "x-strom-fault"
_REMEMBERED = 1000


class Played(msgspec.Struct, frozen=True):
    """One request and what answered it: a recording's source, or "" for an answer that was not recorded."""

    number: int
    asked: Asked
    source: str
    faults: FaultSpec
    status: int


class ReplayOptions(msgspec.Struct, frozen=True):
    """`speed`: times faster than recorded; None: without waiting. `loop`: played recordings are played again;
    otherwise each answers one request that is not its own, and then there is a 503.

    `port` 0: a free one. `on_played` is told of every answer when it begins.
    """

    speed: float | None = 1.0
    loop: bool = True
    faults: str | tuple[str, ...] = ()
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    on_played: Callable[[Played], None] | None = None


class ReplayServer:
    """Listens between `start` and `close`, or inside `async with`. `played` are the latest requests and what answered them.

    Raises BadFault when it is made with a fault that cannot be read, and OSError when the address cannot be had.
    """

    def __init__(self, recordings: Iterable[Recording], options: ReplayOptions = ReplayOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._faults = parse_faults(options.faults)
        self._shelf = Shelf(recordings, loop=options.loop)
        self._connections: set[ReplayConnection] = set()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._server: asyncio.Server | None = None
        self._numbers = 0
        self.played: deque[Played] = deque(maxlen=_REMEMBERED)

    @property
    def port(self) -> int:
        if self._server is None or not self._server.sockets:
            raise RuntimeError("not listening")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = self._options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def paths(self) -> list[str]:
        return self._shelf.paths()

    @property
    def models(self) -> list[str]:
        return self._shelf.models()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, self._options.host, self._options.port)

    async def close(self) -> None:
        """Cuts what is still open."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cut()
        await self._emptied.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        await self.close()
        return False

    # -- Answerer

    def answer(self, asked: Asked) -> Script:
        bare, own = _split_faults(asked)
        if not self._shelf.knows(bare) and (small := small_answer(bare, self._shelf.models())) is not None:
            return small
        self._numbers += 1
        try:
            faults = (self._faults if own is None else _own_faults(own)).for_request(self._numbers)
        except BadFault as error:
            return self._note(bare, "", FaultSpec(), error_answer(bare.path, 400, error.message))
        replaced = fault_answer(bare, faults)
        if replaced is not None:
            delayed = msgspec.structs.replace(replaced, head_delay_s=faults.value("slow-head") or 0.0)
            return self._note(bare, "", faults, delayed)
        recording = self._shelf.take(bare)
        if recording is None:
            return self._note(bare, "", faults, self._nothing_fits(bare))
        rng = random.Random(f"{self._options.seed}/{self._numbers}")  # noqa: S311 - repeatable on purpose
        script = write_script(recording, faults, rng, speed=self._options.speed)
        return self._note(bare, recording.source, faults, script)

    def add(self, connection: ReplayConnection) -> None:
        self._connections.add(connection)
        self._emptied.clear()

    def remove(self, connection: ReplayConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    # -- inside

    def _connection(self) -> asyncio.Protocol:
        if self._faults.has("tls"):
            self._numbers += 1
            if self._faults.for_request(self._numbers):
                return RefusedHandshake()
        return ReplayConnection(self)

    def _nothing_fits(self, asked: Asked) -> Script:
        if self._shelf.knows(asked):
            message = (
                f"Every recording of {asked.method} {asked.path} was played; without --once they are played again."
            )
            return error_answer(asked.path, 503, message)
        known = ", ".join(self._shelf.paths())
        return error_answer(asked.path, 404, f"No recording of {asked.method} {asked.path}; there are: {known}.")

    def _note(self, asked: Asked, source: str, faults: FaultSpec, script: Script) -> Script:
        played = Played(self._numbers, asked, source, faults, script.status)
        self.played.append(played)
        if self._options.on_played is not None:
            self._options.on_played(played)
        return script


def _split_faults(asked: Asked) -> tuple[Asked, str | None]:
    """The request without the faults it asks for, and these."""
    found = next((value for name, value in asked.headers if name == FAULT_HEADER), None)
    path, _, query = asked.target.partition("?")
    if FAULT_HEADER in query:
        pairs = parse_qsl(query, keep_blank_values=True)
        found = next((value for name, value in pairs if name == FAULT_HEADER), found)
        rest = urlencode([pair for pair in pairs if pair[0] != FAULT_HEADER])
        return msgspec.structs.replace(asked, target=f"{path}?{rest}" if rest else path), found
    return asked, found


def _own_faults(spec: str) -> FaultSpec:
    faults = parse_faults(spec)
    if faults.has("tls"):
        raise BadFault("fault 'tls' strikes before any request: give it to the server")
    return faults
