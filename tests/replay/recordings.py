"""Small recordings made by hand, and clients of a replay server that see every byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from strom.replay.recording import Asked, Ending, Head, Piece, Recording
from tests.patience import PATIENCE_S

QUIET_S = 0.1

FRAMES = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"lo"}}]}\n\n',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
BODY = b"".join(FRAMES)
STREAM = (("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), ("connection", "close"))
CHAT = "/v1/chat/completions"


def asked(body: Any = None, *, path: str = CHAT, method: str = "POST", headers: Any = ()) -> Asked:
    data = b"" if body is None else json.dumps(body).encode()
    return Asked(method, path, tuple(headers), data)


def stream(
    *parts: bytes, request: Any = None, kind: Any = "complete", headers: Any = STREAM, source: str = ""
) -> Recording:
    """Ten milliseconds before the head and before each part."""
    pieces = tuple(Piece(10.0 * n, part) for n, part in enumerate(parts or FRAMES, 2))
    body = {"model": "m", "stream": True} if request is None else request
    return Recording(asked(body), Head(10.0, 200, headers), pieces, Ending(999.0, kind), source=source)


def whole(text: str, *, request: Any = None, path: str = CHAT) -> Recording:
    data = json.dumps({"text": text}).encode()
    headers = (("content-type", "application/json"), ("content-length", str(len(data))))
    return Recording(
        asked(request, path=path), Head(1.0, 200, headers), (Piece(2.0, data),), Ending(3.0, "complete"), source=text
    )


def request_bytes(path: str = CHAT, body: Any = None, *, method: str = "POST", extra: str = "") -> bytes:
    data = json.dumps({"model": "m", "stream": True} if body is None else body).encode()
    return f"{method} {path} HTTP/1.1\r\nhost: h\r\n{extra}content-length: {len(data)}\r\n\r\n".encode() + data


async def exchange(port: int, *requests: bytes) -> tuple[bytes, str]:
    """What the server sent, and how it stopped: eof or reset. The last request asks it to close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    last = requests[-1]
    if b"\r\nconnection: close\r\n" not in last:
        last = last.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    writer.write(b"".join(requests[:-1]) + last)
    got = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while data := await reader.read(65_536):
                got += data
        return got, "eof"
    except ConnectionResetError:
        return got, "reset"
    finally:
        writer.close()


async def hear_stall(port: int, request: bytes, last: bytes) -> bytes:
    """What came up to `last`, and in the silence after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        while last not in got:
            data = await reader.read(65_536)
            assert data, got
            got += data
    with contextlib.suppress(TimeoutError):
        got += await asyncio.wait_for(reader.read(65_536), QUIET_S)
    assert not reader.at_eof()
    writer.close()
    return got


def unchunk(message: bytes) -> tuple[bytes, bool]:
    """Body of one chunked message, and whether its last chunk came."""
    _, _, rest = message.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size_line, _, rest = rest.partition(b"\r\n")
        size = int(size_line, 16)
        if size == 0:
            return body, True
        body, rest = body + rest[:size], rest[size + 2 :]
    return body, False
