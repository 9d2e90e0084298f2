"""A backend whose answers depend on nothing but the request: for tests that compare streams byte for byte.

It speaks all four protocols. The last user text is a number, from which the frames, their sizes and their pauses follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

Frames = Iterator[bytes]
WORDS = ("stream", "Strom", "ü", "日本", "\\n", "🌊", '"quoted"', "</think>", "data: [DONE]", "id: 7", " ", "a" * 300)


def texts(seed: int) -> list[str]:
    """Pieces of an answer."""
    draw = random.Random(seed)  # noqa: S311 - a test has to be repeatable
    return ["".join(draw.choices(WORDS, k=draw.randint(1, 4))) for _ in range(draw.randint(8, 40))]


def _event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def chat(seed: int) -> Frames:
    def frame(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        kept = {"id": f"chatcmpl-{seed}", "object": "chat.completion.chunk", "created": 1, "model": "real"}
        return b"data: " + json.dumps({**kept, "choices": [choice], **more}).encode() + b"\n\n"

    yield frame({"role": "assistant", "content": ""})
    for text in texts(seed):
        yield frame({"content": text})
    yield frame({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12})
    yield b"data: [DONE]\n\n"


def messages(seed: int) -> Frames:
    message = {"id": f"msg_{seed}", "type": "message", "role": "assistant", "model": "real", "content": []}
    usage = {"input_tokens": 3, "output_tokens": 1}
    yield _event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _event("ping")
    for text in texts(seed):
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
    yield _event("content_block_stop", index=0)
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": 9})
    yield _event("message_stop")


def responses(seed: int) -> Frames:
    numbers = iter(range(10_000))

    def event(kind: str, **members: Any) -> bytes:
        return _event(kind, sequence_number=next(numbers), **members)

    whole = "".join(texts(seed))
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": f"item_{seed}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    response = _response(seed)
    yield event("response.created", response=response)
    yield event("response.in_progress", response=response)
    yield event("response.output_item.added", output_index=0, item=item)
    yield event("response.content_part.added", **place, part=part)
    for text in texts(seed):
        yield event("response.output_text.delta", **place, delta=text, logprobs=[])
    yield event("response.output_text.done", **place, text=whole, logprobs=[])
    done = {**item, "status": "completed", "content": [{**part, "text": whole}]}
    yield event("response.content_part.done", **place, part={**part, "text": whole})
    yield event("response.output_item.done", output_index=0, item=done)
    usage = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**response, "status": "completed", "output": [done], "usage": {**usage, **details}}
    yield event("response.completed", response=ended)


def _response(seed: int) -> dict[str, Any]:
    told = {"id": f"resp_{seed}", "object": "response", "created_at": 1, "status": "in_progress", "model": "real"}
    empty = {"output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "error": None}
    return {**told, **empty, "incomplete_details": None, "instructions": None, "metadata": {}, "usage": None}


def ollama(seed: int) -> Frames:
    def line(text: str, **more: Any) -> bytes:
        message = {"role": "assistant", "content": text}
        kept = {"model": "real", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False}
        return json.dumps({**kept, **more}).encode() + b"\n"

    for text in texts(seed):
        yield line(text)
    yield line("", done=True, done_reason="stop", total_duration=5, prompt_eval_count=3, eval_count=9)


KINDS: dict[str, Callable[[int], Frames]] = {
    "/v1/chat/completions": chat,
    "/v1/messages": messages,
    "/v1/responses": responses,
    "/api/chat": ollama,
}


def request_body(path: str, seed: int) -> dict[str, Any]:
    """What a client of this path sends."""
    name = {"/v1/chat/completions": "chat", "/v1/messages": "messages", "/v1/responses": "responses"}.get(
        path, "ollama"
    )
    body: dict[str, Any] = {"model": f"{name}/m", "stream": True}
    if path == "/v1/responses":
        return {**body, "input": str(seed), "store": False}
    return {**body, "max_tokens": 99, "messages": [{"role": "user", "content": str(seed)}]}


def _seed(body: bytes) -> int:
    asked = json.loads(body)
    content = asked["messages"][-1]["content"] if "messages" in asked else asked["input"]
    found = re.search(r"\d+", json.dumps(content))
    assert found is not None
    return int(found[0])


class Backend:
    """`open`: answers under way. Half of the answers come in bursts, the others with up to `longest_pause_s` between frames."""

    def __init__(self, longest_pause_s: float = 0.01) -> None:
        self.open = 0
        self.url = ""
        self._longest_pause_s = longest_pause_s
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.open += 1
                try:
                    await self._answer(head.split(" ")[1], body, writer)
                finally:
                    self.open -= 1
        writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        kind = KINDS.get(path)
        if kind is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        seed = _seed(body)
        draw = random.Random(seed + 1)  # noqa: S311
        pause_s = draw.random() * self._longest_pause_s if seed % 2 else 0.0
        content = b"application/x-ndjson" if path == "/api/chat" else b"text/event-stream"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + content + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        for frame in kind(seed):
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
