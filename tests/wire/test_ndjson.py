"""Framing of NDJSON: every cut gives the same lines, only LF ends one, work is linear."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import InvalidStreamEvent
from strom.wire.ndjson import BOM, NdjsonParser
from tests.patience import assert_linear

BODY = '{"a":1}\n\n{"b":"é\u2028\x85"}\r\n{"c":3}\n{"d"'.encode()
LINES = [b'{"a":1}\n', b"\n", '{"b":"é\u2028\x85"}\r\n'.encode(), b'{"c":3}\n']


def read(chunks: list[bytes], parser: NdjsonParser | None = None) -> tuple[list[bytes], bytes]:
    parser = parser or NdjsonParser()
    lines = [line for chunk in chunks for line in parser.feed(chunk)]
    return lines, parser.pending


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(BODY)])
def test_every_cut_gives_the_same_lines(size: int) -> None:
    chunks = [BODY[at : at + size] for at in range(0, len(BODY), size)]
    assert read(chunks) == (LINES, b'{"d"')


@given(st.lists(st.binary(max_size=12)))
def test_no_byte_is_lost_or_added(chunks: list[bytes]) -> None:
    lines, pending = read(chunks)
    body = b"".join(chunks)
    assert b"".join(lines) + pending == (body[len(BOM) :] if body.startswith(BOM) else body)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@pytest.mark.parametrize("size", range(1, 25))
def test_the_limit_is_the_same_in_any_pieces(size: int) -> None:
    longest, longer = b'{}\n{"a":1}\n{}\n', b'{}\n{"a":12}\n{}\n'
    assert len(read(in_pieces(longest, size), NdjsonParser(8))[0]) == 3
    with pytest.raises(InvalidStreamEvent):
        read(in_pieces(longer, size), NdjsonParser(8))


def in_pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_a_bom_is_taken_away_once(size: int) -> None:
    body = BOM + b'{"a":1}\n' + BOM + b"\n"
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    assert read(chunks) == ([b'{"a":1}\n', BOM + b"\n"], b"")


def test_what_only_begins_like_a_bom_stays() -> None:
    assert read([BOM[:2], b"x\n"]) == ([BOM[:2] + b"x\n"], b"")


def test_several_lines_in_one_read() -> None:
    parser = NdjsonParser()
    assert parser.feed(b"1\n2\n\n3\n") == [b"1\n", b"2\n", b"\n", b"3\n"]
    assert parser.idle
    assert parser.feed(b"4") == []
    assert not parser.idle
    assert parser.feed(b"5\n") == [b"45\n"]


def test_an_endless_line_is_an_error() -> None:
    parser = NdjsonParser(max_line_bytes=10)
    assert parser.feed(b"0123456789") == []
    with pytest.raises(InvalidStreamEvent, match="more than 10 bytes"):
        parser.feed(b"x")


def test_a_line_byte_by_byte_costs_linear_time() -> None:
    def make(length: int) -> Callable[[], None]:
        def work() -> None:
            parser = NdjsonParser()
            for _ in range(length):
                parser.feed(b"x")

        return work

    assert_linear(make, 20_000)
