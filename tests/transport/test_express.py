"""Whole chunks that come alone take the short way. Whatever a read holds, body and end are the same as on the long one."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.test_connection import Upstream, response

HEAD = response(b"Transfer-Encoding: chunked")


def chunk(data: bytes, head: bytes = b"%x") -> bytes:
    return head % len(data) + b"\r\n" + data + b"\r\n"


class Express(Upstream):
    """Its receiver asks for the short way as soon as the head is there."""

    def __init__(self) -> None:
        super().__init__()
        self.alone: list[bytes] = []
        self.feed(HEAD)
        self.call.express(self.take)

    def feed(self, data: bytes, *, step: int = 0) -> Express:
        super().feed(data, step=step)
        return self

    def take(self, data: bytes) -> None:
        self.alone.append(data)
        self.told.body += data


async def test_a_chunk_that_comes_alone() -> None:
    up = Express().feed(chunk(b"first")).feed(chunk(b"second")).feed(chunk(b"x" * 300))
    assert up.told.body == b"first" + b"second" + b"x" * 300
    assert up.alone == [b"first", b"second", b"x" * 300]
    up.feed(b"0\r\n\r\n")
    assert up.told.outcome == "complete"
    assert up.pooled


async def test_nothing_is_alone_that_is_not() -> None:
    up = Express().feed(chunk(b"first"))
    for read in (
        chunk(b"one") + chunk(b"two"),
        chunk(b"AB", b"%02x"),
        chunk(b"y" * 10, b"%X"),
        chunk(b"ext", b"%x;a=b"),
        chunk(b"z" * 5000),
    ):
        up.feed(read)
    assert up.alone == [b"first"]
    assert up.told.body == b"firstonetwoAB" + b"y" * 10 + b"ext" + b"z" * 5000


async def test_a_read_within_a_chunk_is_not_taken_for_one() -> None:
    up = Express().feed(chunk(b"first"))
    inner = chunk(b"inner")
    up.feed(b"40\r\n").feed(inner).feed(b"x" * (64 - len(inner)) + b"\r\n")
    assert up.alone == [b"first"]
    assert up.told.body == b"first" + inner + b"x" * (64 - len(inner))
    up.feed(chunk(b"next"))
    assert up.alone == [b"first", b"next"]


async def test_a_chunk_after_the_last_is_none() -> None:
    up = Express().feed(chunk(b"first")).feed(b"0\r\n\r\n" + chunk(b"more"))
    assert up.alone == [b"first"]
    assert up.told.outcome == "complete"
    assert not up.pooled


async def test_the_next_request_begins_the_long_way() -> None:
    up = Express().feed(chunk(b"first")).feed(b"0\r\n\r\n")
    up.call = up.request("POST", up.told.__class__(), reused=True)
    up.feed(HEAD).feed(chunk(b"one")).feed(chunk(b"two"))
    assert up.alone == [b"first"]


async def test_an_aborted_request_hears_nothing() -> None:
    up = Express().feed(chunk(b"first"))
    up.call.abort()
    up.connection.data_received(chunk(b"late"))
    assert up.alone == [b"first"]


async def test_a_coded_body_is_decoded_first() -> None:
    coded = zlib.compress(b"hello")
    up = Upstream().feed(response(b"Transfer-Encoding: chunked", b"Content-Encoding: deflate"))
    alone: list[bytes] = []
    up.call.express(alone.append)
    up.feed(chunk(coded[:4])).feed(chunk(coded[4:])).feed(b"0\r\n\r\n")
    assert alone == []
    assert up.told.body == b"hello"


@given(
    st.lists(
        st.binary(min_size=1, max_size=40) | st.sampled_from([b"\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n"]), max_size=8
    ),
    st.lists(st.integers(1, 60), max_size=12),
)
def test_the_body_is_the_same_however_it_is_cut(pieces: list[bytes], steps: list[int]) -> None:
    wire = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    up = Express().feed(chunk(b"first"))
    rest = wire
    for step in [*steps, len(wire)]:
        read, rest = rest[:step], rest[step:]
        if read:
            up.feed(read)
    assert up.told.body == b"first" + b"".join(pieces)
    assert up.told.outcome == "complete"


@pytest.mark.parametrize("size", [1, 15, 16, 255, 256, 2000])
async def test_every_length_of_a_size_is_told(size: int) -> None:
    up = Express().feed(chunk(b"first")).feed(chunk(b"a" * size))
    assert up.alone == [b"first", b"a" * size]
