"""Judges of what cuts streams and JSON into pieces, beside readings of the same rules that share nothing with it.

Source of the event stream's rules: WHATWG HTML, section 9.2.6.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from typing import Any

from strom.client.partial import NOTHING, PartialJson
from strom.core.json_scan import JsonScan
from strom.server.resumable.numbering import EventNumbering, LineNumbering
from strom.transport.decoding import MAX_STEP_BYTES, CodingError, Decoder
from strom.wire.ndjson import NdjsonParser
from strom.wire.splice import append_member, join, split
from strom.wire.sse import Frame, SseParser

BOM = b"\xef\xbb\xbf"
MOST = 1 << 20

EVENTS = (
    b'data: {"a": 1}\n\ndata: [DONE]\n\n',
    b'event: ping\ndata: {"type": "ping"}\n\nevent: message_stop\ndata: {}\n\n',
    b": comment\n\nid: 7\nretry: 5\n\ndata: one\ndata: two\n\n",
    b"data: x\r\n\r\ndata:y\r\rdata\n\n\n\nid\nevent:\n",
    BOM + b"data: bom\n\nerror: what is this\n\ndata: open",
)
EVENT_WORDS = (
    b"data: ",
    b"data:",
    b"data",
    b"event: ",
    b"id: 3\n",
    b"retry: 1\n",
    b": c\n",
    b"\n\n",
    b"\r\r",
    b"[DONE]",
)
LINES = (
    b'{"a": 1}\n{"b": "\xe2\x80\xa8"}\n',
    b'\r\n{"done": true}\r\n{"open": ',
    BOM + b'{"a":[1,2,{"c":"d\\n"}]}\n\n\n',
)
OBJECTS = (
    b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}',
    b'{"a": {"b": [1, 2.5e3, null, "x\\ny\\u00e9\\ud83d\\ude00"]}, "a": -0, "": false}',
    b'  {"city": "Paris", "days": [1, 2], "q": "\\"}{"}  ',
    b'```json\n{"city": "Paris"}\n```\nDone.',
    b'{"strom": {"trace_id": "t"}, "strom ": 1}',
    b'{"str\\u006fm": {"trace_id": "t"}, "strom"\n:\t1}',
    b"[1, [2, [3]]]",
)
CODED = (
    gzip.compress(b"hello " * 40, mtime=0),
    gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0),
    zlib.compress(b"data: x\n\n" * 30),
    zlib.compressobj(wbits=-15).compress(b"") + zlib.compress(b"raw deflate", wbits=-15),
    gzip.compress(b"\0" * 300_000, mtime=0),
)


# --- event streams and lines -------------------------------------------------------------------------


def judge_sse(pieces: list[bytes], _: random.Random) -> None:
    data = b"".join(pieces)
    parser = SseParser(MOST)
    frames = [frame for piece in pieces for frame in parser.feed(piece)]
    found = [(frame.event, frame.data) for frame in frames]
    blocks, rest = _blocks(data)
    assert len(found) == len(blocks), f"{len(found)} frames of {len(blocks)} blocks"
    for (event, told), block in zip(found, blocks, strict=True):
        if told is None or block[1] is not None:
            assert (event, told) == block, f"{(event, told)} for {block}"
    out = b"".join(frame.raw for frame in frames) + parser.pending
    assert _lined(out) == _lined(data.removeprefix(BOM)), "bytes are lost or made up"
    assert not (parser.idle and parser.pending)
    assert _lined(parser.pending) == rest or parser.pending.rstrip(b"\r\n") == rest.rstrip(b"\n")
    _same_frames(frames, data)


def _same_frames(frames: list[Frame], data: bytes) -> None:
    whole = SseParser(MOST).feed(data)
    assert [frame[:2] for frame in whole] == [frame[:2] for frame in frames], "a cut changes the frames"


def _lined(data: bytes) -> bytes:
    return re.sub(rb"\r\n|\r", b"\n", data)


def _blocks(data: bytes) -> tuple[list[tuple[bytes, bytes | None]], bytes]:
    """Event and data of each block by the letter of the standard, and what is not closed."""
    *lines, rest = _lined(data.removeprefix(BOM)).split(b"\n")
    blocks: list[tuple[bytes, bytes | None]] = []
    begun: list[bytes] = []
    for line in lines:
        if line:
            begun.append(line)
            continue
        fields = [(name, value.removeprefix(b" ")) for name, _, value in (each.partition(b":") for each in begun)]
        datas = [value for name, value in fields if name == b"data"]
        events = [value for name, value in fields if name == b"event"]
        blocks.append((events[-1] if events else b"", b"\n".join(datas) if datas else None))
        begun = []
    return blocks, b"\n".join([*begun, rest]) if begun else rest


def judge_ndjson(pieces: list[bytes], _: random.Random) -> None:
    data = b"".join(pieces)
    parser = NdjsonParser(MOST)
    lines = [line for piece in pieces for line in parser.feed(piece)]
    assert b"".join(lines) + parser.pending == data.removeprefix(BOM) or (len(data) < 3 and BOM.startswith(data))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert b"\n" not in parser.pending


def judge_numbering(pieces: list[bytes], _: random.Random) -> None:
    data = b"".join(pieces)
    for make in (EventNumbering, LineNumbering):
        numbering = make(MOST)
        numbered = [numbering.feed(piece) for piece in pieces]
        frames = [frame for each in numbered for frame in each[0]] + numbering.finish()
        whole = make(MOST)
        at_once = whole.feed(data)[0] + whole.finish()
        assert [_lined(frame) for frame in frames] == [_lined(frame) for frame in at_once], "a cut changes the frames"
        if make is EventNumbering:
            _check_ids(frames)


def _check_ids(frames: list[bytes]) -> None:
    """A client's parser sees of each frame the number that it has, and no other."""
    for number, frame in enumerate(frames, 1):
        ids = [line[3:].strip() for line in _lined(frame).split(b"\n")[:-1] if line.partition(b":")[0] == b"id"]
        assert ids == [b"%d" % number], f"frame {number} has the ids {ids}"


# --- JSON --------------------------------------------------------------------------------------------


def judge_splice(pieces: list[bytes], _: random.Random) -> None:
    data = b"".join(pieces)
    try:
        members = split(data)
        data.decode()  # what is in a string that is passed on as it came, nobody looks at
    except ValueError:
        return
    value = json.loads(data)
    assert list(members) == list(value)
    assert {name: json.loads(member) for name, member in members.items()} == value
    assert json.loads(join(members)) == value
    told = b'{"trace_id":"t1"}'
    longer = json.loads(append_member(data, "strom", told), object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in longer].count("strom") == 1, "a member stands there twice"
    assert json.loads(append_member(data, "strom", told)) == {**value, "strom": {"trace_id": "t1"}}


def _texts(pieces: list[bytes]) -> list[str]:
    """The pieces as text; characters are whole, as in a decoded frame."""
    return [piece.decode("utf-8", "replace") for piece in pieces]


def judge_json_scan(pieces: list[bytes], _: random.Random) -> None:
    texts = _texts(pieces)
    text = "".join(texts)
    scan, whole = JsonScan(), JsonScan()
    out = "".join([scan.feed(piece) for piece in texts])
    assert out == whole.feed(text) == scan.text, "a cut changes what is passed on"
    problem = scan.problem()
    assert problem == whole.problem()
    value = _loads(text)
    if isinstance(value, dict):
        assert out.rstrip() == text.strip(), "a legal text is changed"
        assert scan.complete
        assert not problem
    elif not problem and not scan.empty:
        assert isinstance(json.loads(out), dict)


def judge_partial(pieces: list[bytes], _: random.Random) -> None:
    texts = _texts(pieces)
    partial = PartialJson()
    shown: Any = NOTHING
    for piece in texts:
        partial.feed(piece)
        value = partial.snapshot()
        if value is not NOTHING:
            assert isinstance(value, dict)
            shown = value
    text = "".join(texts)
    value = _loads(text)
    if isinstance(value, dict) and texts:
        assert partial.complete, "an object that is closed counts as open"
        assert shown == value or _odd(text), f"{shown} for {value}"


def _odd(text: str) -> bool:
    """What the one reader takes and the other refuses."""
    return "NaN" in text or "Infinity" in text or bool(re.search(r"\\u[dD]|\d{15}|[eE]\+?\d{3}", text))


def _loads(text: str) -> Any:
    """None for what strict readers refuse."""
    if _odd(text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- content codings -----------------------------------------------------------------------------------


def judge_coding(pieces: list[bytes], _: random.Random) -> None:
    for coding in ("gzip", "deflate"):
        whole, divided = _inflate(coding, [b"".join(pieces)]), _inflate(coding, pieces)
        assert (whole[1], divided[1]) in ((True, True), (False, False)), "a cut changes whether it is whole"
        if whole[1]:
            assert whole[0] == divided[0], "a cut changes the body"
    data = b"".join(pieces)
    whole = _inflate("gzip", [data])
    try:
        expected: bytes | None = gzip.decompress(data) if data else None
    except (EOFError, OSError, zlib.error):
        expected = None
    if expected is not None and whole[1]:
        assert whole[0] == expected


def _inflate(coding: str, pieces: list[bytes]) -> tuple[bytes, bool]:
    """What comes out, and whether it may end there."""
    decoder = Decoder(coding)
    out = b""
    try:
        for piece in pieces:
            decoder.feed(piece)
            for _ in range(10_000):
                if decoder.idle:
                    break
                step = decoder.step()
                assert len(step) <= MAX_STEP_BYTES
                out += step
            assert decoder.idle, "it never comes to an end"
    except CodingError:
        return out, False
    return out, decoder.complete
