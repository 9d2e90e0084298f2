"""Small recordings made by hand, and clients of a replay server that see every byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from strom.replay.recording import Asked, Ending, Head, Piece, Recording

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


async def exchange(port: int, *requests: bytes, patience_s: float = 5.0) -> tuple[bytes, str]:
    """What the server sent, and how it stopped: eof, reset, or open (nothing more came)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    got = b""
    try:
        async with asyncio.timeout(patience_s):
            while data := await reader.read(65_536):
                got += data
        return got, "eof"
    except TimeoutError:
        return got, "open"
    except ConnectionResetError:
        return got, "reset"
    finally:
        writer.close()


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
