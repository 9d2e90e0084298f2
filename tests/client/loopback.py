"""A scripted backend on a loopback socket, in a thread of its own, for the real shells.

What a request gets is told by the text of its last message: "hang" is answered with one delta and silence, "late" with nothing
at all; "refuse" with 503; anything else with the words of that text as deltas, one write each.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from tests.client.rig import DONE, call, chunk, content, finish, usage
from tests.patience import PATIENCE_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Loopback:
    """`open`: connections that stand now; `requests`: bodies in the order they came."""

    def __init__(self) -> None:
        self.open = 0
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Loopback:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end())

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # transports close in the next turns of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(lines[0].partition(b":")[2])) if lines else b"{}"
                await self._answer(head, json.loads(body), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(
        self, head: bytes, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.requests.append(body)
        if head.startswith(b"GET"):
            whole(writer, {"data": [{"id": "m1"}, {"id": "m2"}]})
            return
        if b"/embeddings" in head.partition(b"\r\n")[0]:
            vectors = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(body["input"])]
            whole(writer, {"data": vectors, "model": "e1", "usage": {"prompt_tokens": 3}})
            return
        await self._stream(body, reader, writer)

    async def _stream(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = str(body["messages"][-1].get("content"))
        if text == "refuse":
            writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}")
            return
        if text == "late":
            await reader.readexactly(1)  # until the client leaves
        writer.write(HEAD)
        if text == "hang":
            writer.write(framed(content("first")))
            await reader.readexactly(1)
        wants_tool = bool(body.get("tools")) and body["messages"][-1]["role"] == "user"
        frames = [call("c1", "f", '{"a":1}'), finish("tool_calls")] if wants_tool else words(text)
        for frame in (chunk({"role": "assistant"}), *frames, usage(), DONE):
            writer.write(framed(frame))
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")


def words(text: str) -> list[bytes]:
    return [*(content(f"{word} ") for word in text.split(" ")), finish("stop")]


def whole(writer: asyncio.StreamWriter, data: object) -> None:
    body = json.dumps(data).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
