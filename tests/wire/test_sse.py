"""Server-sent events: bytes in, frames out, whatever the reads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import InvalidStreamEvent
from strom.wire.sse import Frame, SseParser
from tests.patience import assert_cpu_below


def parse(*reads: bytes) -> list[Frame]:
    parser = SseParser()
    return [frame for read in reads for frame in parser.feed(read)]


def data(*reads: bytes) -> list[bytes | None]:
    return [frame.data for frame in parse(*reads) if frame.data is not None]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_line_ends(end: bytes) -> None:
    body = b"event: e%sdata: a%sdata:b%s%sdata: c%s%s".replace(b"%s", end)
    frames = parse(body)
    assert [(frame.event, frame.data) for frame in frames if frame.data] == [(b"e", b"a\nb"), (b"", b"c")]
    assert data(*(bytes([byte]) for byte in body)) == [b"a\nb", b"c"]


def test_mixed_line_ends() -> None:
    assert data(b"data: a\n\r\ndata: b\r\n\ndata: c\r\r\n", b"data: d\n\n") == [b"a", b"b", b"c", b"d"]


def test_other_separators_are_content() -> None:
    text = "data: a\u2028b\u0085c\x0bd\n\n".encode()
    assert data(text) == ["a\u2028b\u0085c\x0bd".encode()]


def test_fields() -> None:
    body = b": note\nid: 1\nretry: 5\ndata\ndata:  x\nnonsense\n\n:\n\ndata:\n\n"
    assert [frame.data for frame in parse(body)] == [b"\n x", None, b""]


def test_many_events_in_one_read() -> None:
    assert data(b"data: a\n\ndata: b\n\n: c\n\ndata: d\n\n") == [b"a", b"b", b"d"]


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark(cut: int) -> None:
    body = b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"
    assert data(body[:cut], body[cut:]) == [b"a", b"\xef\xbb\xbfb"]
    assert data(*(bytes([byte]) for byte in body)) == [b"a", b"\xef\xbb\xbfb"]


def test_a_mark_before_a_blank_line() -> None:
    assert data(b"\xef\xbb", b"\xbf\n", b"data: a\n\n") == [b"a"]


def test_what_only_begins_like_a_mark() -> None:
    assert data(b"\xef", b"data: a\n\n", b"data: b\n\n") == [b"\xefdata: a", b"b"]


def test_pending() -> None:
    parser = SseParser()
    assert parser.idle
    parser.feed(b"data: [DONE]\n")
    assert not parser.idle
    assert parser.pending == b"data: [DONE]\n"
    parser.feed(b"\n")
    assert parser.idle
    assert parser.feed(b"") == []


def test_a_return_at_the_end_of_a_read() -> None:
    assert data(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\rdata: c\n\n") == [b"a", b"b", b"c"]


def test_a_frame_over_the_limit() -> None:
    parser = SseParser(max_frame_bytes=10)
    assert parser.feed(b"data: 1234") == []
    with pytest.raises(InvalidStreamEvent):
        parser.feed(b"5")


@pytest.mark.parametrize("step", range(1, 40))
def test_the_limit_is_the_same_in_any_pieces(step: int) -> None:
    longest, longer = b"data: 1\n\ndata: 1234567\n\n", b"data: 1\n\ndata: 12345678\n\n"
    assert feed_in_steps(longest, step) == [b"1", b"1234567"]
    with pytest.raises(InvalidStreamEvent):
        feed_in_steps(longer, step)


def feed_in_steps(body: bytes, step: int) -> list[bytes | None]:
    parser = SseParser(max_frame_bytes=15)
    return [frame.data for at in range(0, len(body), step) for frame in parser.feed(body[at : at + step])]


PIECES = st.sampled_from(
    [b"data: a", b"data:b", b"event: e", b":c", b"\n", b"\r", b"\r\n", b"\n\n", b"id: 1", b"\xef\xbb\xbf", b"x"]
)


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 60), max_size=6))
def test_any_cut_gives_the_same_events_and_no_byte_is_lost(pieces: list[bytes], places: list[int]) -> None:
    body = b"".join(pieces)
    cuts = [0, *sorted(min(place, len(body)) for place in places), len(body)]
    reads = [body[a:b] for a, b in pairwise(cuts)]
    assert [f[:2] for f in parse(*reads) if f.data is not None] == [f[:2] for f in parse(body) if f.data is not None]
    parser = SseParser()
    raw = b"".join(frame.raw for read in reads for frame in parser.feed(read)) + parser.pending
    lines = (b"".join(part.split()) for part in (raw, body.removeprefix(b"\xef\xbb\xbf")))
    assert len(set(lines)) == 1


def test_work_is_linear() -> None:
    def work() -> None:
        parser = SseParser()
        for _ in range(100_000):
            parser.feed(b"x")
        for _ in range(50):
            parser.feed(b"y" * 100_000)

    assert_cpu_below(3, work)


def test_blank_lines_between_events_are_blocks_of_their_own_in_any_cut() -> None:
    body = b"\ndata: a\n\n\n\ndata: b\n\n"
    assert [frame.raw for frame in parse(body)] == [frame.raw for frame in parse(*(bytes([byte]) for byte in body))]
