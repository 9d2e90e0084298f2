"""The file format: what is written can be read again, byte for byte; what is broken is named with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from strom.replay import lines
from strom.replay.recording import Asked, BadRecording, Ending, Head, Piece, Recording
from tests.replay.recordings import stream

BODIES = [b'{"a": 1.50, "a": 2}', b'{"a":\n1}', b"[1]", b'{"t": "\\ud83d"}', b" 1"]
FIRST = '{"strom_recording": 1, "method": "POST", "target": "/v1/x", "headers": []}\n'
HEAD = '{"t_ms": 1, "status": 200, "headers": [["Content-Type", "text/plain"]]}\n'
END = '{"t_ms": 9, "end": "complete"}\n'


@given(
    body=some.binary(max_size=40) | some.sampled_from(BODIES),
    pieces=some.lists(some.tuples(some.floats(0, 1e6), some.binary(max_size=20)), max_size=4),
    kind=some.sampled_from(["complete", "cut", "reset", "client_left"]),
    detail=some.none() | some.text(some.characters(codec="utf-8"), max_size=5),
)
def test_what_is_written_is_read(body: bytes, pieces: list[tuple[float, bytes]], kind: str, detail: str | None) -> None:
    recording = Recording(
        Asked("POST", "/v1/x?a=b", (("accept", "*/*"),), body),
        Head(1.5, 200, (("x", "y"),)),
        tuple(Piece(*piece) for piece in pieces),
        Ending(9.25, kind, detail),  # type: ignore[arg-type]  # one of the kinds
        "2026-03-01T12:00:00.123Z",
        "f",
    )
    assert lines.decode(lines.encode(recording), "f") == [recording]


def test_one_line_per_read_and_a_versioned_first_line() -> None:
    text = lines.encode(stream(b"data: a\n\n", "ü".encode()[:1], "ü".encode()[1:]))
    objects = [json.loads(line) for line in text.splitlines()]
    assert text.count(b"\n") == len(objects) == 6
    assert objects[0]["strom_recording"] == 1
    assert objects[0]["body"] == {"model": "m", "stream": True}, "JSON stands as JSON"
    assert [set(line) for line in objects[2:]] == [
        {"t_ms", "text"},
        {"t_ms", "base64"},
        {"t_ms", "base64"},
        {"t_ms", "end"},
    ]


def test_files_may_be_joined_and_have_blank_lines_and_unknown_members() -> None:
    one = FIRST + HEAD + '{"t_ms": 2, "text": "a", "colour": "red"}\n\n' + END
    first, second = lines.decode((one + one).encode(), "f")
    assert first == second
    assert first.body == b"a"
    assert first.head is not None
    assert first.head.headers == (("content-type", "text/plain"),)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "f: no recording"),
        ("{", "f, line 1"),
        ("\xff", "f, line 1"),
        (END, "f, line 1: a recording begins with"),
        (FIRST.replace("1", "2", 1) + END, "format version 2"),
        (FIRST, "no end line"),
        (FIRST + FIRST + END, "f, line 2: the recording before"),
        (FIRST + "{}\n" + END, "f, line 2: neither"),
        (FIRST + HEAD + HEAD + END, "f, line 3: a final status"),
        (FIRST + HEAD.replace("200", "100") + END, "f, line 2: a final status"),
        (FIRST + '{"text": "a"}\n' + END, "a body without the status"),
        (FIRST + HEAD + '{"base64": "?"}\n' + END, "f, line 3: no base64"),
        (FIRST + '{"end": "exploded"}\n', "f, line 2"),
        (FIRST.replace('"headers"', '"body_base64": "?", "headers"') + END, "f, line 1: no base64"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, place: str) -> None:
    with pytest.raises(BadRecording) as caught:
        lines.decode(text.encode("latin-1"), "f")
    assert place in caught.value.message
