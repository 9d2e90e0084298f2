"""A backend that fails in every way that is known, and knows of each call what it has proven.

It speaks all four protocols. A request names its call by a mark (`mark0000017x`) and says how long the answer is (`n=9`) and
how slowly it comes (`gap=0.2`). The answer is the pieces `mark0000017x#0;`, `mark0000017x#1;` … and usage that belongs to this
mark alone; a request that holds some pieces already (a continuation) gets the others. Which fault strikes is drawn for each
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

MARK = re.compile(rb"mark\d{7}x")
PIECE = re.compile(rb"mark\d{7}x#(\d+);")
_ORDER = re.compile(rb"(n|gap)=([0-9.]+)")
FAULTS = {
    "none": 52, "reset": 7, "close": 5, "short": 4, "stall": 3, "garbage": 4, "error": 4, "busy": 5, "failing": 5, "html": 2,
    "slow-head": 3, "unanswered": 3, "trickle": 2, "doubled": 1,
}  # fmt: skip
"""How often each strikes, in a hundred requests."""
BUSY = ((429, b"retry-after: 1\r\n"), (429, b""), (503, b"retry-after: 0.2\r\n"), (529, b""))
STALL_S = 8.0
Frames = Iterator[tuple[bytes, bool]]
"""A frame, and whether it is the last one of a proof."""


def usage_of(mark: bytes) -> int:
    """Input tokens that no other call reports, or hardly any."""
    return 1000 + int(mark[4:-1]) % 90_000


def _event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def _chat(mark: str, pieces: list[str]) -> Frames:
    def frame(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        kept = {"id": f"chatcmpl-{mark}", "object": "chat.completion.chunk", "created": 1, "model": "real"}
        return b"data: " + json.dumps({**kept, "choices": [choice], **more}).encode() + b"\n\n"

    yield frame({"role": "assistant", "content": ""}), False
    for piece in pieces:
        yield frame({"content": piece}), False
    given, made = usage_of(mark.encode()), len(pieces)
    usage = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    yield frame({}, "stop", usage=usage), False
    yield b"data: [DONE]\n\n", True


def _messages(mark: str, pieces: list[str]) -> Frames:
    message = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "model": "real", "content": []}
    usage = {"input_tokens": usage_of(mark.encode()), "output_tokens": 1}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event("message_start", message=start), False
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""}), False
    for piece in pieces:
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}), False
    yield _event("content_block_stop", index=0), False
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": len(pieces)}), False
    yield _event("message_stop"), True


def _responses(mark: str, pieces: list[str]) -> Frames:
    numbers = iter(range(10_000))

    def event(kind: str, **members: Any) -> tuple[bytes, bool]:
        return _event(kind, sequence_number=next(numbers), **members), kind == "response.completed"

    told = {"id": f"resp_{mark}", "object": "response", "created_at": 1, "status": "in_progress", "model": "real"}
    empty = {"output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "error": None}
    response = {**told, **empty, "incomplete_details": None, "instructions": None, "metadata": {}, "usage": None}
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield event("response.created", response=response)
    yield event("response.output_item.added", output_index=0, item=item)
    yield event("response.content_part.added", **place, part=part)
    for piece in pieces:
        yield event("response.output_text.delta", **place, delta=piece, logprobs=[])
    whole = {**part, "text": "".join(pieces)}
    yield event("response.output_text.done", **place, text=whole["text"], logprobs=[])
    done = {**item, "status": "completed", "content": [whole]}
    yield event("response.content_part.done", **place, part=whole)
    yield event("response.output_item.done", output_index=0, item=done)
    given, made = usage_of(mark.encode()), len(pieces)
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made, **details}
    yield event("response.completed", response={**response, "status": "completed", "output": [done], "usage": usage})


def _ollama(mark: str, pieces: list[str]) -> Frames:
    def line(text: str, **more: Any) -> bytes:
        message = {"role": "assistant", "content": text}
        kept = {"model": "real", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False}
        return json.dumps({**kept, **more}).encode() + b"\n"

    for piece in pieces:
        yield line(piece), False
    counts = {"prompt_eval_count": usage_of(mark.encode()), "eval_count": len(pieces), "total_duration": 5}
    yield line("", done=True, done_reason="stop", **counts), True


KINDS: dict[bytes, Callable[[str, list[str]], Frames]] = {
    b"/v1/chat/completions": _chat,
    b"/v1/messages": _messages,
    b"/v1/responses": _responses,
    b"/api/chat": _ollama,
}


EMBEDDINGS = b"/v1/embeddings"


class Seen:
    """What the backend knows of one call. `proven`: some answer to it was whole; `faults`: of its requests in their order."""

    __slots__ = ("faults", "proven")

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.proven = False


class _Ended(Exception):
    """The connection is to be ended now. `args`: "close" or "reset"."""


class Backend:
    """`calls`: by mark. `open`: answers under way."""

    def __init__(self, seed: int, faults: dict[str, int] | None = None) -> None:
        self.calls: dict[bytes, Seen] = {}
        self.faults: Counter[str] = Counter()
        self.open = 0
        self.url = ""
        self._draw = random.Random(seed)  # noqa: S311 - a soak has to be repeatable
        self._weights = FAULTS if faults is None else faults
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4000)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # RuntimeError: what uvloop says of a write to a connection that the other side has ended
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, RuntimeError):
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                    body = await reader.readexactly(int(length[1])) if length else b""
                    self.open += 1
                    try:
                        await self._answer(head.split(b" ", 2)[1], body, writer)
                    finally:
                        self.open -= 1
            except _Ended as ended:
                if ended.args[0] == "reset":
                    writer.transport.abort()
        writer.close()

    async def _answer(self, path: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        mark = MARK.search(body)
        if mark is None or path not in (*KINDS, EMBEDDINGS):
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        (fault,) = self._draw.choices(list(self._weights), list(self._weights.values()))
        seen = self.calls.setdefault(mark[0], Seen())
        seen.faults.append(fault)
        self.faults[fault] += 1
        if await self._refused(fault, mark[0], writer):
            return
        if path == EMBEDDINGS:
            seen.proven = True
            await self._embed(mark[0], writer)
            return
        orders = dict(_ORDER.findall(body))
        begin = max((int(number) for number in PIECE.findall(body)), default=-1) + 1
        name = mark[0].decode()
        pieces = [f"{name}#{number};" for number in range(begin, int(orders[b"n"]))]
        kind = b"application/x-ndjson" if path == b"/api/chat" else b"text/event-stream"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        frames = list(KINDS[path](name, pieces))
        await self._stream(frames, fault, float(orders[b"gap"]), seen, writer)

    async def _embed(self, mark: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._draw.random() * 0.3)
        number = usage_of(mark)
        item = {"object": "embedding", "index": 0, "embedding": [float(number), 1.0]}
        told = {
            "object": "list",
            "data": [item],
            "model": mark.decode(),
            "usage": {"prompt_tokens": number, "total_tokens": number},
        }
        body = json.dumps(told).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()

    async def _refused(self, fault: str, mark: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether there is no stream."""
        match fault:
            case "unanswered":
                raise _Ended(self._draw.choice(("close", "reset")))
            case "busy" | "failing":
                status, advice = self._draw.choice(BUSY) if fault == "busy" else (self._draw.choice((500, 502)), b"")
                told = b'{"error":{"message":"no, ' + mark + b'","type":"server_error"}}'
                kind = b"application/json"
            case "html":
                status, advice, told, kind = 200, b"", b"<html>" + mark + b"</html>", b"text/html"
            case "slow-head":
                await asyncio.sleep(1.5)
                return False
            case _:
                return False
        head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n" % (status, kind, advice, len(told))
        writer.write(head + told)
        return True

    async def _stream(
        self, frames: list[tuple[bytes, bool]], fault: str, gap_s: float, seen: Seen, writer: asyncio.StreamWriter
    ) -> None:
        strikes_at = self._draw.randrange(max(1, len(frames) - 1))
        for number, (frame, proves) in enumerate(frames):
            if number == strikes_at:
                frame = await self._struck(fault, frame, writer)  # noqa: PLW2901 - it is another one now
                if not frame:
                    break
            if proves and fault not in ("garbage", "error"):
                seen.proven = True
            await self._send(frame, writer, trickles=fault == "trickle" and number == strikes_at)
            if proves and fault == "doubled":
                await self._send(frame, writer, trickles=False)
            await asyncio.sleep(gap_s)
        if not writer.transport.is_closing():
            writer.write(b"0\r\n\r\n")

    async def _struck(self, fault: str, frame: bytes, writer: asyncio.StreamWriter) -> bytes:
        """What is sent instead; b"": the body ends there, well framed."""
        match fault:
            case "reset" | "close":
                writer.write(b"%x\r\n%b" % (len(frame), frame[: len(frame) // 2]))
                await asyncio.sleep(0.01)
                raise _Ended(fault)
            case "short":
                return b""
            case "stall":
                await asyncio.sleep(STALL_S)
            case "garbage":
                return b'data: {"choices": [broken\n\n'
            case "error":
                return b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"it fell over"}}\n\n'
        return frame

    async def _send(self, frame: bytes, writer: asyncio.StreamWriter, *, trickles: bool) -> None:
        if writer.transport.is_closing():
            raise ConnectionResetError
        for part in [frame[at : at + 1] for at in range(len(frame))] if trickles else [frame]:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            if trickles:
                await asyncio.sleep(0.002)
        await writer.drain()
