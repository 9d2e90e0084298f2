"""Bytes to frames: every legal form is read, wherever the reads are cut; what is guesswork is a flaw."""

from __future__ import annotations

import pytest

from strom.conformance.asking import Capture, Read
from strom.conformance.framing import Frame, split_events, split_lines


def capture_of(body: bytes, size: int = 1 << 20) -> Capture:
    """A body in reads of that size, the n-th after n milliseconds."""
    capture = Capture()
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    capture.reads = [Read(float(number), piece) for number, piece in enumerate(pieces)]
    return capture


LEGAL = (
    '\ufeff: hi\r\n\r\nevent: a\r\ndata: {"x":\r\ndata:1}\r\n\r\nid: 3\nretry: 5\n\ndata: ü\u2028\r\rdata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_every_legal_form(size: int) -> None:
    framing = split_events(capture_of(LEGAL.encode(), size))
    assert [(frame.event, frame.data) for frame in framing.frames] == [
        ("a", '{"x":\n1}'),
        ("", "ü\u2028"),
        ("", "[DONE]"),
    ]
    assert len(framing.heartbeats) == 1
    assert framing.flaws == []


def test_a_frame_has_the_time_of_its_last_byte() -> None:
    framing = split_events(capture_of(b"data: 1\n\ndata: 2\n\n", 9))
    assert framing.frames == [Frame("1", "", 0.0), Frame("2", "", 1.0)]
    assert [frame.at_ms for frame in split_lines(capture_of(b"1\n2\n", 1)).frames] == [1.0, 3.0]


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b"data: {}\n", "the body ends inside an event (no blank line after it)"),
        (b"data: {}", "the body ends inside an event (no blank line after it)"),
        (b"event: x\n\nda", "the body ends inside an event (no blank line after it)"),
        (b'{"x": 1}\n\n', 'a line is no field of an event: {"x": 1}'),
        (b"data\n\n", "a line is no field of an event: data"),
        (b"data: \xff\n\n", "a frame is no UTF-8: \ufffd"),
    ],
)
def test_flaws_of_events(body: bytes, flaw: str) -> None:
    assert split_events(capture_of(body)).flaws == [flaw]


def test_the_sentinel_counts_without_its_line_ends() -> None:
    for body in (b"data: [DONE]", b"data: [DONE]\n"):
        framing = split_events(capture_of(body))
        assert [frame.data for frame in framing.frames] == ["[DONE]"]
        assert framing.flaws


def test_lines() -> None:
    assert split_lines(capture_of(b"1\r\n2\n")).flaws == []
    assert split_lines(capture_of(b"1\n\n2\n")).flaws == ["a blank line"]
    assert split_lines(capture_of(b"1\n2")).flaws == ["the last line has no line end"]
    assert split_lines(capture_of(b"")).frames == split_events(capture_of(b"")).frames == []
