"""Random damage to bytes and frames. Everything is drawn from the generator that is given, so a seed is an input."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.corpus import Answer, frames_of

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**30, 1e308, [], [[]], [None], [{}], {}, {"": None}, [0] * 50),
    *(
        "",
        "x",
        "[DONE]",
        "stop",
        "\u2028\x85",
        "\ud800",
        "\x00",
        "<think>",
        "</think>",
        "{",
        '{"a":',
        "```json\n",
        "é" * 300,
    ),
    *({"type": "text"}, {"error": "no"}),
]
INSERTS = [
    *(
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"data: ",
        b"data:\n\n",
        b": comment\n\n",
        b"id: 1\nretry: 5\n\n",
    ),
    *(b"data: [DONE]\n\n", b"data: {}\n\n", b"data: null\n\n", b"{}\n", b"null\n", b'{"error": "no"}\n'),
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'data: {"error": {"message": "no"}}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "x", "message": "no"}}\n\n',
]
Frames = list[bytes]


def mutate(answer: Answer, others: list[Answer], draw: random.Random) -> bytes:
    """One to four changes, most often to frames; then perhaps to single bytes, and perhaps a cut."""
    frames = frames_of(answer, draw) if answer.streamed else [answer.data]
    foreign = draw.choice(others)
    for _ in range(draw.randint(0, 3)):
        if frames:
            draw.choice(_ON_FRAMES)(frames, draw)
    if draw.random() < 0.15:
        frames.insert(draw.randint(0, len(frames)), draw.choice(frames_of(foreign, draw) or [b""]))
    data = b"".join(frames)
    for _ in range(draw.choice((0, 0, 1, 2))):
        data = draw.choice(_ON_BYTES)(data, draw)
    return data[: draw.randint(0, len(data))] if draw.random() < 0.2 else data


def pieces_of(data: bytes, draw: random.Random) -> list[bytes]:
    """The same bytes in up to nine reads, or, when there are few, byte by byte."""
    if len(data) < 400 and draw.random() < 0.1:
        return [data[at : at + 1] for at in range(len(data))]
    edges = sorted({0, len(data), *(draw.randint(0, len(data)) for _ in range(draw.randint(0, 8)))})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


# --- frames ------------------------------------------------------------------------------------


def _drop(frames: Frames, draw: random.Random) -> None:
    del frames[draw.randrange(len(frames))]


def _double(frames: Frames, draw: random.Random) -> None:
    at = draw.randrange(len(frames))
    frames[at:at] = [frames[at]] * draw.choice((1, 1, 1, 40))


def _swap(frames: Frames, draw: random.Random) -> None:
    one, other = draw.randrange(len(frames)), draw.randrange(len(frames))
    frames[one], frames[other] = frames[other], frames[one]


def _insert(frames: Frames, draw: random.Random) -> None:
    frames.insert(draw.randint(0, len(frames)), draw.choice(INSERTS))


def _change_value(frames: Frames, draw: random.Random) -> None:
    """Another value, or another name, at a random place of a frame's JSON."""
    at = draw.randrange(len(frames))
    head, brace, rest = frames[at].partition(b"{")
    try:
        value, end = json.JSONDecoder().raw_decode((brace + rest).decode())
    except (ValueError, UnicodeDecodeError):
        return
    tail = (brace + rest).decode()[end:].encode()
    _change(value, draw)
    frames[at] = head + json.dumps(value).encode() + tail


def _change(value: Any, draw: random.Random) -> None:
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.75:
            value = inner
            continue
        if isinstance(value, dict) and draw.random() < 0.25:
            value.pop(key)
            if draw.random() < 0.5:
                value[draw.choice(("", "error", "index", "type", "content", "delta"))] = inner
        else:
            value[key] = draw.choice(ODD)
        return


_ON_FRAMES: list[Callable[[Frames, random.Random], None]] = [
    _drop,
    _double,
    _swap,
    _insert,
    _change_value,
    _change_value,
    _change_value,
]


# --- bytes -------------------------------------------------------------------------------------


def _flip(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def _push(data: bytes, draw: random.Random) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice((draw.randbytes(draw.randint(1, 8)), *INSERTS)) + data[at:]


def _cut_out(data: bytes, draw: random.Random) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + data[at + draw.randint(1, 60) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    at, size = draw.randint(0, len(data)), draw.randint(1, 60)
    return data[:at] + data[at : at + size] * draw.choice((2, 2, 50)) + data[at + size :]


def _turn_lines(data: bytes, draw: random.Random) -> bytes:
    return data.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n")))


_ON_BYTES: list[Callable[[bytes, random.Random], bytes]] = [_flip, _flip, _push, _cut_out, _repeat, _turn_lines]
