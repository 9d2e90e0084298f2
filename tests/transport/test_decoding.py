"""Content codings: every cut, promptness, bombs, pauses, and bodies that are not what they say."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.transport.decoding import MAX_STEP_BYTES, CodingError, Decoder, DecodingReceiver, content_coding
from strom.transport.types import TransportFailure
from tests.transport.fakes import Told

TEXT = b"data: {}\n\n" * 50 + bytes(range(256))


def pack(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


BODIES = {
    "gzip": ("gzip", gzip.compress(TEXT), TEXT),
    "two members": ("gzip", gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
    "deflate": ("deflate", pack(TEXT, 15), TEXT),
    "raw deflate": ("deflate", pack(TEXT, -15), TEXT),
    "empty gzip": ("gzip", gzip.compress(b""), b""),
    "nothing at all": ("gzip", b"", b""),
}


class Call:
    """Stands for the request: `fail` ends it as the real one does."""

    def __init__(self, coding: str) -> None:
        self.told = Told()
        self.decoder = DecodingReceiver(coding, self.told, self)
        self.decoder.on_response(200, [(b"content-encoding", b"x"), (b"content-length", b"5"), (b"x", b"y")])

    def fail(self, failure: TransportFailure) -> None:
        self.decoder.stop()
        self.told.on_failure(failure)

    def feed(self, data: bytes, step: int = 0) -> Call:
        for at in range(0, len(data), step or max(1, len(data))):
            self.decoder.on_body(data[at : at + (step or len(data))])
            self.decoder.on_read_end()
        return self


@pytest.mark.parametrize("step", [0, 1, 2, 7])
@pytest.mark.parametrize("name", BODIES)
def test_decoded_at_every_cut(name: str, step: int) -> None:
    coding, packed, plain = BODIES[name]
    call = Call(coding).feed(packed, step)
    call.decoder.on_end(delimited_by_close=False)
    assert call.told.body == plain
    assert call.told.outcome == "complete"
    assert call.told.headers == [(b"x", b"y")]


@pytest.mark.parametrize("name", ["gzip", "deflate", "raw deflate"])
def test_a_cut_body_is_a_failure(name: str) -> None:
    coding, packed, _ = BODIES[name]
    for at in range(1, len(packed)):
        call = Call(coding).feed(packed[:at])
        call.decoder.on_end(delimited_by_close=True)
        assert call.told.failure.kind == "decoding"


@given(st.binary(min_size=1, max_size=200), st.sampled_from(["gzip", "deflate"]))
def test_garbage_is_a_failure_or_data_and_never_another_error(data: bytes, coding: str) -> None:
    call = Call(coding).feed(data, 3)
    call.decoder.on_end(delimited_by_close=False)
    assert call.told.outcome is not None


def test_data_behind_the_body_is_a_failure() -> None:
    assert Call("deflate").feed(pack(TEXT, 15) + b"x").told.failure.kind == "decoding"
    assert Call("gzip").feed(gzip.compress(TEXT) + b"xx").told.failure.kind == "decoding"


def test_what_is_flushed_leaves_at_once() -> None:
    packer = zlib.compressobj(wbits=31)
    call = Call("gzip")
    for n in range(5):
        call.feed(packer.compress(b"data: %d\n\n" % n) + packer.flush(zlib.Z_SYNC_FLUSH))
        assert call.told.body.endswith(b"data: %d\n\n" % n)


def test_a_bomb_comes_in_bounded_steps_and_obeys_a_pause() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    call = Call("gzip")
    largest = 0

    def pause_at_every_piece() -> None:
        nonlocal largest
        event = call.told.events.pop()
        largest = max(largest, len(event[1]))
        call.told.body = b""
        call.decoder.pause()

    call.told.on_piece = pause_at_every_piece
    call.feed(bomb)
    call.decoder.on_end(delimited_by_close=False)
    assert call.told.outcome is None
    resumed = 0
    while call.told.outcome is None:
        call.decoder.resume()
        resumed += 1
    assert largest == MAX_STEP_BYTES
    assert resumed >= 20_000_000 // MAX_STEP_BYTES
    assert call.told.outcome == "complete"


def test_a_failure_waits_behind_the_output_before_it() -> None:
    call = Call("gzip")
    call.decoder.pause()
    call.feed(gzip.compress(TEXT))
    call.decoder.on_failure(TransportFailure("cut", "", sent=True))
    assert call.told.events == [("response", 200)]
    call.decoder.resume()
    assert call.told.body == TEXT
    assert call.told.failure.kind == "cut"


def test_resuming_tells_of_the_read() -> None:
    call = Call("gzip")
    call.decoder.pause()
    call.feed(gzip.compress(TEXT))
    call.decoder.resume()
    assert call.told.events[-1] == ("read_end",)
    call.decoder.stop()
    call.decoder.resume()
    call.decoder.on_body(b"x")
    call.decoder.on_read_end()
    call.decoder.on_response(200, [])
    call.decoder.on_end(delimited_by_close=False)
    assert call.told.events[-1] == ("read_end",)


def test_resuming_from_inside_a_piece_keeps_the_order() -> None:
    call = Call("gzip")

    def blink() -> None:
        call.decoder.pause()
        call.decoder.resume()

    call.told.on_piece = blink
    data = bytes(300_000)
    call.feed(gzip.compress(data))
    call.decoder.on_end(delimited_by_close=False)
    assert call.told.body == data
    assert call.told.outcome == "complete"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, deflate", ""])
def test_unknown_codings(coding: str) -> None:
    with pytest.raises(CodingError):
        Decoder(coding)


@pytest.mark.parametrize(
    ("values", "coding"),
    [([], None), ([b"identity"], None), ([b""], None), ([b"X-GZIP"], "gzip"), ([b"gzip", b"br"], "gzip, br")],
)
def test_declared_codings(values: list[bytes], coding: str | None) -> None:
    assert content_coding(values) == coding
