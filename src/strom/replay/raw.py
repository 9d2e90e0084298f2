"""Reads recordings made with a raw socket: a folder with request.json, response.raw, headers.txt and timing.jsonl.

request.json has `method`, `path`, and `body` (JSON) or `body_text`; headers.txt is the response's head as it came; timing.jsonl
has `t_ms`, `offset` and `len` per HTTP chunk, and `end_ms` with `socket_error` on its last line. A chunked response whose
`wire.raw` (the exact bytes, where they were kept) lacks the last chunk was cut.
Source: RFC 9112 section 7.1 (the last chunk).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from strom.replay.recording import Asked, BadRecording, End, Ending, Head, Piece, Recording

MARK = "response.raw"
"""A folder with a file of this name is such a recording."""


class _Request(msgspec.Struct):
    method: str
    path: str
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_text: str | None = None


class _Timing(msgspec.Struct):
    t_ms: float | None = None
    offset: int = 0
    len: int = 0
    end_ms: float | None = None
    socket_error: str | None = None


def read_folder(folder: Path) -> Recording:
    """Raises BadRecording."""
    try:
        request = msgspec.json.decode((folder / "request.json").read_bytes(), type=_Request)
        body = (folder / MARK).read_bytes()
        head = _head((folder / "headers.txt").read_text("latin-1"))
        lines = (folder / "timing.jsonl").read_bytes().splitlines()
        timing = [msgspec.json.decode(line, type=_Timing) for line in lines]
    except OSError as error:
        raise BadRecording(f"{folder}: {error.strerror or error} ({error.filename})") from None
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise BadRecording(f"{folder}: {error}") from None
    pieces = tuple(Piece(t.t_ms, body[t.offset : t.offset + t.len]) for t in timing if t.t_ms is not None and t.len)
    if b"".join(piece.data for piece in pieces) != body:
        pieces = (Piece(_end_ms(timing), body),) if body else ()
    first_ms = pieces[0].t_ms if pieces else _end_ms(timing)
    ending = Ending(_end_ms(timing), _kind(folder, head, timing))
    asked = Asked(request.method, request.path, _fields(request.headers), _asked_body(request))
    return Recording(asked, msgspec.structs.replace(head, t_ms=first_ms), pieces, ending, source=str(folder))


def _head(text: str) -> Head:
    status_line, *lines = text.splitlines()
    pairs = [line.partition(":") for line in lines if line]
    return Head(0.0, int(status_line.split()[1]), tuple((name.lower(), value.strip()) for name, _, value in pairs))


def _fields(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in headers.items())


def _asked_body(request: _Request) -> bytes:
    if request.body_text is not None:
        return request.body_text.encode()
    return b"" if bytes(request.body) == b"null" else bytes(request.body)


def _end_ms(timing: list[_Timing]) -> float:
    last = timing[-1] if timing else _Timing()
    return last.end_ms if last.end_ms is not None else last.t_ms or 0.0


def _kind(folder: Path, head: Head, timing: list[_Timing]) -> End:
    if timing and timing[-1].socket_error:
        return "reset"
    wire = folder / "wire.raw"
    if (head.header("transfer-encoding") or "").lower() != "chunked" or not wire.is_file():
        return "complete"
    return "complete" if wire.read_bytes().endswith(b"0\r\n\r\n") else "cut"
