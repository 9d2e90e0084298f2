"""A gateway as its users run it, a process of its own, and an upstream that says what its request asks for.

The upstream speaks Chat and Messages. It echoes the last user text in pieces, so that every stream carries its own words; the
text may begin with orders: `n=5` pieces, `gap=0.01` seconds between them, `end=proof|cut|error|hang`, or `refuse=500` for that
status and a body that quotes the whole request, its key included.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
ORDER = re.compile(r"(n|gap|end|refuse)=(\S+)")


class Upstream:
    """Runs in a thread. `open`: connections on which an answer is under way; `requests`: bodies and heads as they came."""

    def __init__(self) -> None:
        self.open = 0
        self.requests: list[tuple[str, bytes]] = []
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(PATIENCE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=10_000))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        under_way = asyncio.all_tasks(self._loop)
        for task in under_way:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))
        self._loop.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.requests.append((head, body))
                self.open += 1
                try:
                    await self._answer(head, json.loads(body or b"{}"), writer)
                    if b"end=hang" in body:
                        await reader.read()
                        return
                finally:
                    self.open -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        text = last_text(request)
        orders = dict(ORDER.findall(text))
        if "refuse" in orders:
            told = json.dumps({"error": {"message": f"{head} {text}"}}).encode()
            line = f"HTTP/1.1 {orders['refuse']} No\r\ncontent-type: application/json\r\ncontent-length: {len(told)}\r\n\r\n"
            writer.write(line.encode() + told)
            return
        speak = messages_frames if "/messages " in head.partition("\r\n")[0] else chat_frames
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for frame in speak(text, int(orders.get("n", 3)), orders.get("end", "proof")):
            await asyncio.sleep(float(orders.get("gap", 0)))
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
        if orders.get("end") == "hang":
            return
        if orders.get("end") == "cut":
            raise ConnectionResetError
        writer.write(b"0\r\n\r\n")


def last_text(request: dict[str, Any]) -> str:
    content = (request.get("messages") or [{"content": ""}])[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def chat_frames(text: str, pieces: int, end: str) -> Iterator[bytes]:
    def frame(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": f"chatcmpl-{text[-12:]}", "object": "chat.completion.chunk", "created": 1, "model": "real"}
        return b"data: " + json.dumps({**chunk, "choices": [choice], **more}).encode() + b"\n\n"

    yield frame({"role": "assistant", "content": ""})
    for number in range(pieces):
        yield frame({"content": f"{text}#{number} "})
    if end == "error":
        yield b'data: {"error":{"message":"failed for ' + text.encode() + b'"}}\n\n'
    if end == "proof":
        yield frame({}, "stop", usage={"prompt_tokens": len(text), "completion_tokens": pieces, "total_tokens": 0})
        yield b"data: [DONE]\n\n"


def messages_frames(text: str, pieces: int, end: str) -> Iterator[bytes]:
    def frame(kind: str, **members: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()

    start = {"id": f"msg_{text[-12:]}", "type": "message", "role": "assistant", "model": "real", "content": []}
    usage = {"input_tokens": len(text), "output_tokens": 1}
    yield frame("message_start", message={**start, "stop_reason": None, "stop_sequence": None, "usage": usage})
    yield frame("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for number in range(pieces):
        yield frame("content_block_delta", index=0, delta={"type": "text_delta", "text": f"{text}#{number} "})
    if end == "error":
        yield frame("error", error={"type": "api_error", "message": f"failed for {text}"})
    if end == "proof":
        yield frame("content_block_stop", index=0)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield frame("message_delta", delta=delta, usage={"output_tokens": pieces})
        yield frame("message_stop")


@contextmanager
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    try:
        yield running
    finally:
        running.close()


class Gateway:
    """`strom serve` under way. `url`: where it listens."""

    def __init__(self, folder: Path, arguments: list[str], environment: dict[str, str]) -> None:
        self.log = folder / "stderr.txt"
        own = {name: value for name, value in os.environ.items() if not name.startswith("STROM_")}
        self._stderr = self.log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "strom", "serve", *arguments],
            cwd=folder,
            env={**own, "PYTHONPATH": str(ROOT / "src"), **environment},
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self.url = ""

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        found = re.search(r"https?://\S+", line)
        assert found, f"no start-up line: {line!r} {self.log.read_text()}"
        self.url = found[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._stderr.close()

    def traces(self) -> list[dict[str, Any]]:
        """All there are."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = httpx.get(f"{self.url}/platform/v1/traces?limit=1000{cursor}", timeout=60).json()
            found += page["data"]
            if page.get("next_cursor") is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"


@contextmanager
def gateway(folder: Path, *arguments: str, **environment: str) -> Iterator[Gateway]:
    running = Gateway(folder, ["--port", "0", *arguments], environment)
    try:
        running.wait_ready()
        yield running
    finally:
        running.end()


def ask(text: str, **more: Any) -> dict[str, Any]:
    """A streamed request in the words of Chat and Messages alike."""
    turn = {"role": "user", "content": text}
    return {"model": "m", "max_tokens": 50, "stream": True, "messages": [turn], **more}
