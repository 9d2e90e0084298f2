"""Nothing that comes makes this codec raise, end twice, or take more than linear time."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.errors import BadRequest, StromError
from strom.core.events import Block, BlockStarted, Completed, Failed, Started, TextDelta
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks, Target
from strom.protocols.openai_responses import CODEC
from tests.effort import examples
from tests.grammar import openai_responses as grammar
from tests.patience import assert_linear
from tests.protocols.openai_responses.frames import (
    added,
    arguments,
    call,
    context,
    created,
    delta,
    done,
    ended,
    message,
    numbered,
    plain,
    summary,
    text_part,
)

FRAMES = [
    *plain(),
    added(1, call("fc_1")),
    arguments(1, '{"a":'),
    arguments(1, "1}"),
    done(1, call("fc_1", '{"a":1}')),
    added(2, {"id": "rs_1", "type": "reasoning", "summary": []}),
    summary(2, "hm"),
    done(2, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "E"}),
    added(3, {"id": "ws_1", "type": "web_search_call"}),
    done(3, {"id": "ws_1", "type": "web_search_call"}),
    ended("incomplete"),
    ended("failed", error={"message": "x"}),
    b"data: [DONE]\n\n",
    b": comment\n\n",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = [
    "type", "sequence_number", "output_index", "content_index", "summary_index", "item_id", "delta", "text", "refusal",
    "arguments", "input", "name", "item", "part", "annotation", "response", "error", "message", "logprobs",
]  # fmt: skip
KINDS = sorted({json.loads(frame.partition(b"data: ")[2])["type"] for frame in FRAMES if b"data: {" in frame})


@st.composite
def odd_frames(draw: st.DrawFn) -> bytes:
    """A frame of a known type whose members are anything."""
    members = draw(st.dictionaries(st.sampled_from(MEMBERS), json_values, max_size=6))
    if draw(st.booleans()):
        members["type"] = draw(st.sampled_from(KINDS))
    for name in ("item", "response"):
        if draw(st.booleans()):
            inner = st.dictionaries(
                st.sampled_from(["type", "id", "output", "usage", "status", "content", "summary", "name", "arguments"]),
                json_values | st.sampled_from(["message", "reasoning", "function_call", "completed"]),
                max_size=5,
            )
            members[name] = draw(inner)
    return f"data: {json.dumps(members)}\n\n".encode()


streams = st.lists(st.sampled_from(FRAMES) | odd_frames() | st.binary(max_size=30), max_size=14)


def mutated(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for place, value in changes:
        if out:
            out[place % len(out)] = value
    return bytes(out)


def check_decoder(pieces: list[bytes]) -> None:
    decoder, checker = CODEC.decoder(Quirks()), OrderChecker()
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()
    for event in events:
        checker.feed(event)
    assert isinstance(events[-1], Completed | Failed)
    encoder = CODEC.encoder(context())
    out = encoder.encode([event for event in events if not isinstance(event, Failed)])
    last = events[-1]
    if isinstance(last, Failed):
        out += encoder.fail(last.error)
    grammar.read(out)


def check_relay(pieces: list[bytes]) -> None:
    relay = CODEC.relay(context(), Quirks())
    out = b"".join(relay.feed(piece) for piece in pieces) + relay.finish()
    assert relay.evidence.complete != (relay.evidence.error is not None)
    if relay.evidence.error is not None:
        out += relay.fail(relay.evidence.error)
    assert isinstance(out, bytes)


@settings(max_examples=examples(50))
@given(streams)
def test_any_order_of_any_frames(pieces: list[bytes]) -> None:
    check_decoder(pieces)
    check_relay(pieces)


@settings(max_examples=examples(50))
@given(
    st.lists(st.sampled_from(FRAMES), max_size=14),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5),
    st.lists(st.integers(0, 5_000), max_size=5),
)
def test_any_mutation_at_any_cut(frames: list[bytes], changes: list[tuple[int, int]], cuts: list[int]) -> None:
    data = mutated(numbered(*(frame for frame in frames if b"data: {" in frame)), changes)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[left:right] for left, right in pairwise(places)]
    check_decoder(pieces)
    check_relay(pieces)
    decoder = CODEC.decoder(Quirks())
    whole = decoder.feed(data) + decoder.finish()
    again = CODEC.decoder(Quirks())
    assert [str(event) for piece in pieces for event in again.feed(piece)] + [str(e) for e in again.finish()] == [
        str(event) for event in whole
    ]


@settings(max_examples=examples(50))
@given(json_values, st.binary(max_size=40))
def test_any_body(value: Any, junk: bytes) -> None:
    for body in (
        json.dumps(value).encode(),
        junk,
        json.dumps({"object": "response", "status": value, "output": value}).encode(),
    ):
        events = CODEC.decode_reply(body, Quirks())
        assert isinstance(events[-1], Completed | Failed)
        assert isinstance(CODEC.decode_error(400, [], body), StromError)


@settings(max_examples=examples(60))
@given(
    st.dictionaries(
        st.sampled_from(
            ["input", "tools", "tool_choice", "instructions", "text", "reasoning", "metadata", "stream", "x"]
        ),
        json_values,
    ),
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "role", "content", "call_id", "name", "output", "arguments", "summary", "id"]),
            json_values | st.sampled_from(["message", "user", "function_call", "reasoning", "function_call_output"]),
            max_size=5,
        ),
        max_size=4,
    ),
)
def test_any_request(members: dict[str, Any], items: list[dict[str, Any]]) -> None:
    for body in ({"model": "m", **members}, {"model": "m", **members, "input": items}):
        data = json.dumps(body).encode()
        try:
            asked = CODEC.decode_request(data)
        except BadRequest:
            continue
        json.loads(CODEC.relay_request(data, asked, Target("up", stream=True)).body)
        try:
            json.loads(CODEC.encode_request(asked, Target("up", stream=True)).body)
        except StromError:
            continue


# --- time ----------------------------------------------------------------------------------------


def feed_decoder(data: list[bytes]) -> None:
    decoder = CODEC.decoder(Quirks())
    for piece in data:
        decoder.feed(piece)
    decoder.finish()


def feed_relay(data: list[bytes]) -> None:
    relay = CODEC.relay(context(), Quirks())
    for piece in data:
        relay.feed(piece)
    relay.finish()


def test_byte_by_byte() -> None:
    data = b"".join(plain())
    for feed in (feed_decoder, feed_relay):
        assert_linear(lambda count, feed=feed: partial(feed, [bytes([byte]) for byte in data * count]), 2)  # type: ignore[misc]


def test_a_huge_frame_in_small_pieces() -> None:
    def run(size: int) -> None:
        text = "x" * (size * 100_000)
        data = b"".join([created(), delta(0, text), ended(output=[message("msg_1", text_part(text))])])
        feed_decoder([data[at : at + 4096] for at in range(0, len(data), 4096)])

    assert_linear(lambda size: partial(run, size), 1)


def test_many_small_fragments_of_arguments() -> None:
    def run(count: int) -> None:
        frames = [created(), added(0, call("fc_1")), arguments(0, '{"a":"'), *([arguments(0, "x")] * count)]
        feed_decoder([*frames, arguments(0, '"}'), ended()])
        feed_relay(frames)

    assert_linear(lambda size: partial(run, size), 400)


def test_many_items() -> None:
    def run(count: int) -> None:
        frames = [created()]
        for place in range(count):
            frames += [added(place, call(f"fc_{place}")), arguments(place, "{}", f"fc_{place}")]
            frames += [done(place, call(f"fc_{place}", "{}"))]
        feed_decoder([*frames, ended()])
        feed_relay(frames)

    assert_linear(lambda size: partial(run, size), 100)


def test_many_deltas_written() -> None:
    def run(count: int) -> None:
        encoder = CODEC.encoder(context())
        encoder.encode([Started(), BlockStarted(0, Block("text"))])
        for _ in range(count):
            encoder.encode([TextDelta(0, "x")])

    assert_linear(lambda size: partial(run, size), 2000)
