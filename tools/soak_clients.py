"""Clients that behave well and badly, and judge what they are told.

Each asks with a mark of its own. Whoever stays to the end must be told exactly once how it ended: a success only if the
backend has proven one, with this mark's pieces in their order and this mark's usage; else an error. Nobody may ever see
another's mark. A connection that breaks without a word is a lie, unless a worker was killed just then.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from typing import Any, Literal

import msgspec

from tools.soak_backend import MARK, PIECE, Backend, usage_of

Front = Literal["openai-chat", "anthropic", "openai-responses", "ollama"]
PATHS: dict[Front, str] = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
    "ollama": "/api/chat",
}
MANNERS = {
    "stays": 64, "leaves": 9, "resets": 5, "leaves-early": 3, "reads-slowly": 6, "stops-reading": 2, "half-closes": 1,
    "wrong-key": 2, "bad-json": 2, "no-http": 1, "resumable": 5, "embeds": 4,
}  # fmt: skip
STAYING = frozenset({"stays", "reads-slowly", "resumable"})
LONGEST_S = 90.0
KILLED_S = 3.0
"""A connection may break so shortly after a worker was killed."""
_INPUT = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_eval_count)":\s*(\d+)')


class Told(msgspec.Struct):
    """One call as its client saw it. `end`: success, error, status (an HTTP error), left, killed, refused (no call at all)."""

    front: Front
    model: str
    manner: str
    status: int = 0
    end: str = ""
    trace_id: str = ""
    pieces: int = 0
    """It has asked for so many."""
    body: bytes = b""
    began_at: float = 0.0
    phase: str = "connecting"


class Broken(Exception):
    """The connection ended in the middle of an answer."""


class _Noting(asyncio.StreamReaderProtocol):
    """Knows when the other side ended the connection."""

    lost_at: float | None = None

    def eof_received(self) -> bool | None:
        self.lost_at = time.monotonic()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_at = self.lost_at or time.monotonic()
        super().connection_lost(exc)


class Line:
    """A connection that is kept for the next call, where the answer lets it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.reused = False
        self._protocol: _Noting | None = None

    async def send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.reused = self.reader is not None and not self.reader.at_eof()
        if not self.reused or self.writer is None or self.writer.is_closing():
            self.reused = False
            self.drop()
            await self._connect()
        assert self.reader is not None
        assert self.writer is not None
        self.writer.write(data)
        return self.reader, self.writer

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(1 << 20, loop)
        self._protocol = protocol = _Noting(self.reader, loop=loop)
        transport, _ = await loop.create_connection(lambda: protocol, "127.0.0.1", self._port)
        self.writer = asyncio.StreamWriter(transport, protocol, self.reader, loop)

    @property
    def lost_at(self) -> float:
        """When its end came, which a slow reader sees later; now, if it has not."""
        lost_at = self._protocol.lost_at if self._protocol is not None else None
        return lost_at if lost_at is not None else time.monotonic()

    def drop(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None


def request(told: Told, mark: str, draw: random.Random, key: str) -> bytes:
    if told.manner == "embeds":
        return _embedding_request(told, mark, key)
    told.pieces = draw.randint(3, 14)
    text = f"n={told.pieces} gap={draw.choice((0.05, 0.2, 0.4, 0.8))} {mark}"
    streams = draw.random() < 0.85
    turn = {"role": "user", "content": text}
    body: dict[str, Any] = {"model": told.model, "stream": streams, "messages": [turn]}
    if told.front == "openai-responses":
        body = {"model": told.model, "stream": streams, "input": text, "store": False}
    elif told.front == "anthropic":
        body["max_tokens"] = 100
    elif told.front == "openai-chat":
        body["stream_options"] = {"include_usage": True} if streams else None
    data = json.dumps(body).encode()[: -3 if told.manner == "bad-json" else None]
    more = "x-strom-resumable: 1\r\n" if told.manner == "resumable" and streams else ""
    key = "sk-nobody" if told.manner == "wrong-key" else key
    head = (
        f"POST {PATHS[told.front]} HTTP/1.1\r\nhost: h\r\nuser-agent: {mark}\r\nauthorization: Bearer {key}\r\n{more}"
    )
    if told.manner == "no-http":
        head = head.replace(" HTTP/1.1", "")
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def _embedding_request(told: Told, mark: str, key: str) -> bytes:
    told.model = "chat"
    data = json.dumps({"model": "chat", "input": [mark]}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: h\r\nuser-agent: {mark}\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


class Crowd:
    """All clients, and what they found. `kills`: when a worker was killed; whoever kills notes it."""

    def __init__(self, port: int, backend: Backend, keys: list[str], seed: int) -> None:
        self.kills: list[float] = []
        self.counts: Counter[str] = Counter()
        self.lies: list[str] = []
        self.told: dict[bytes, Told] = {}
        self.active = 0
        self.late: list[str] = []
        """Calls given up after `LONGEST_S`, and what each was waiting for."""
        self.ended = False
        self._port = port
        self._backend = backend
        self._keys = keys
        self._seed = seed
        self._number = 0

    async def play(self, number: int) -> None:
        """One client after the other in one place, until `ended`."""
        draw = random.Random(f"{self._seed}:{number}")  # noqa: S311 - repeatable
        line = Line(self._port)
        await asyncio.sleep(draw.random() * 5)
        while not self.ended:
            self._number += 1
            await self._call(line, f"mark{self._number:07}x", draw)
        line.drop()

    async def _call(self, line: Line, mark: str, draw: random.Random) -> None:
        front: Front = draw.choice(list(PATHS))
        (manner,) = draw.choices(list(MANNERS), list(MANNERS.values()))
        told = Told(front, draw.choice(("chat", "messages", "mixed", "going-on")), manner)
        told.began_at = time.monotonic()
        self.active += 1
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._talk(line, told, mark, draw)
        except TimeoutError:
            self.late.append(self._word(mark.encode(), told, f"{told.phase}, {len(told.body)} bytes"))
            told.end = "left"
            line.drop()
        except (Broken, ConnectionError, asyncio.IncompleteReadError) as error:
            self._broken(line, mark, told, error)
            line.drop()
        finally:
            self.active -= 1
        self.counts[f"{told.manner}: {told.end}"] += 1
        self._judge(mark.encode(), told)
        told.body = b""
        if told.end != "refused":
            self.told[mark.encode()] = told

    async def _talk(self, line: Line, told: Told, mark: str, draw: random.Random) -> None:
        reader, writer = await line.send(request(told, mark, draw, draw.choice(self._keys)))
        told.phase = "waiting on a kept connection" if line.reused else "waiting on a new connection"
        if told.manner == "half-closes":
            writer.write_eof()
        if told.manner == "leaves-early":
            await asyncio.sleep(draw.random() * 0.5)
            told.end = "left"
            line.drop()
            return
        head = await reader.readuntil(b"\r\n\r\n")
        told.phase = "reading"
        told.status = int(head.split(b" ", 2)[1])
        found = re.search(rb"x-strom-trace-id: (\w+)", head)
        told.trace_id = found[1].decode() if found else ""
        told.body = head
        if b"chunked" not in head:
            length = re.search(rb"content-length: (\d+)", head)
            told.body += await reader.readexactly(int(length[1])) if length else b""
        elif not await self._read_stream(reader, told, draw):
            told.end = "left"
            if told.manner != "resets" and line.writer is not None:
                line.writer.close()
            line.drop()
            return
        self._classify(told, mark, head)
        if b"connection: close" in head or told.manner in ("no-http", "half-closes"):
            line.drop()

    async def _read_stream(self, reader: asyncio.StreamReader, told: Told, draw: random.Random) -> bool:
        """False: the client has left."""
        patience = draw.randint(1, 8) if told.manner in ("leaves", "resets", "stops-reading") else -1
        while True:
            size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
            told.body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return True
            patience -= 1
            if patience == 0:
                if told.manner == "stops-reading":
                    await asyncio.sleep(draw.random() * 10)
                return False
            if told.manner == "reads-slowly":
                await asyncio.sleep(draw.random() * 0.7)

    def _classify(self, told: Told, mark: str, head: bytes) -> None:
        if told.status != 200:
            told.end = "refused" if told.manner in ("wrong-key", "bad-json", "no-http") else "status"
            return
        body = told.body[len(head) :]
        if b"chunked" not in head:
            told.end = "error" if json.loads(body).get("error") else "success"
            return
        successes, errors = signals(told.front, body)
        told.end = "success" if successes else "error"
        if successes + errors != 1:
            self._lie(mark.encode(), told, f"{successes} successes and {errors} errors are told")

    def _broken(self, line: Line, mark: str, told: Told, error: Exception) -> None:
        now = line.lost_at
        if told.manner == "half-closes" or (told.manner == "no-http" and not told.status):
            told.end = "left"
        elif any(kill <= now <= kill + KILLED_S for kill in self.kills[-4:]):
            told.end = "killed"
        elif not told.body and line.reused:
            told.end = "refused"  # an idle connection that the server had closed
            self.counts["idle connections lost"] += 1
        else:
            told.end = "cut"
            self._lie(mark.encode(), told, f"the connection broke without a word: {error!r}")

    def _judge(self, mark: bytes, told: Told) -> None:
        others = set(MARK.findall(told.body)) - {mark}
        if others:
            self._lie(mark, told, f"was told of {sorted(others)[:3]}")
        if told.manner == "embeds":
            self._judge_embedding(mark, told)
            return
        order = list(dict.fromkeys(int(number) for number in PIECE.findall(told.body)))
        if order != list(range(len(order))):
            self._lie(mark, told, f"pieces {order}")
        if told.end != "success":
            return
        seen = self._backend.calls.get(mark)
        if seen is None or not seen.proven:
            self._lie(mark, told, "a success nobody has proven")
            return
        if len(order) != told.pieces:
            self._lie(mark, told, f"a success with {len(order)} pieces of {told.pieces}")
        reported = _INPUT.findall(told.body)
        if len(seen.faults) == 1 and reported and int(reported[-1]) != usage_of(mark):
            self._lie(mark, told, f"usage {reported[-1]!r} for {usage_of(mark)}")

    def _judge_embedding(self, mark: bytes, told: Told) -> None:
        if told.end == "success":
            value = json.loads(told.body.partition(b"\r\n\r\n")[2])
            number = usage_of(mark)
            if value["data"][0]["embedding"][0] != number or value["usage"]["prompt_tokens"] != number:
                self._lie(mark, told, f"an embedding that is not its own: {value}")

    def _lie(self, mark: bytes, told: Told, what: str) -> None:
        self.counts["lies"] += 1
        self.lies.append(self._word(mark, told, what))

    def _word(self, mark: bytes, told: Told, what: str) -> str:
        seen = self._backend.calls.get(mark)
        faults = seen.faults if seen is not None else []
        return f"{mark.decode()} {told.front} {told.model} {told.manner} {told.status} {faults}: {what}"


def signals(front: Front, body: bytes) -> tuple[int, int]:
    """How often a client is told that the answer is whole, and that it is not."""
    successes = errors = 0
    for line in body.split(b"\n"):
        match front:
            case "openai-chat":
                successes += line == b"data: [DONE]"
                errors += line.startswith(b'data: {"error"') or (b'"error":{' in line and b'"choices"' not in line)
            case "anthropic":
                successes += line == b"event: message_stop"
                errors += line == b"event: error"
            case "openai-responses":
                successes += line in (b"event: response.completed", b"event: response.incomplete")
                errors += line == b"event: response.failed"
            case _:
                value = json.loads(line) if line.strip() else {}
                successes += value.get("done") is True and not value.get("error")
                errors += bool(value.get("error"))
    return successes, errors
