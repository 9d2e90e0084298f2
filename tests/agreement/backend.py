"""A backend on a loopback socket that answers from a script, in the protocol of the path it was asked on.

It runs in a thread of its own, so that the sync and the async library can both be tried against it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Self

from tests.agreement import writers
from tests.agreement.turns import Asked, Object, Script, Turn, read

PATHS = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
}


class ScriptedBackend:
    """`url` once it runs; `asked`: the requests so far; `open`: connections that stand now."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.url = ""
        self.open = 0
        self.asked: list[Asked] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
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
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False when the connection ends with this answer."""
        path, body = await _request(reader)
        protocol = PATHS.get(path)
        if protocol is None:
            known: Object = {"data": [{"id": writers.MODEL}], "models": [{"name": writers.MODEL}]}
            _whole(writer, 200 if path in ("/v1/models", "/api/tags") else 404, known)
            return True
        asked = read(protocol, body, len(self.asked) + 1)
        self.asked.append(asked)
        turn = self.script(asked)
        if turn.status != 200:
            _whole(writer, turn.status, {"error": {"message": "refused by the script", "type": "x", "code": None}})
        elif asked.streamed:
            return await self._stream(protocol, turn, reader, writer)
        else:
            _whole(writer, 200, writers.whole(protocol, turn))
        return True

    async def _stream(
        self, protocol: str, turn: Turn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head % writers.content_type(protocol))
        for frame in writers.stream(protocol, turn):
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await asyncio.sleep(0)
        if turn.silent:
            await reader.read(1)
            return False
        if not turn.cut:
            writer.write(b"0\r\n\r\n")
        return not turn.cut


async def _request(reader: asyncio.StreamReader) -> tuple[str, Object]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    lengths = [field.partition(b":")[2] for field in fields if field.lower().startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    path = first.split(b" ")[1].partition(b"?")[0].decode()
    return path, json.loads(body or b"{}")


def _whole(writer: asyncio.StreamWriter, status: int, answer: Object) -> None:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
