"""What holds for every stream: chunking does not matter, garbage does no harm, work grows linearly, recordings are read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.errors import StromError
from strom.core.events import Completed, Event, Failed
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat import CODEC
from strom.protocols.openai_chat.relay import ChatRelay
from tests.grammar.openai_chat import read
from tests.patience import assert_linear
from tests.protocols.openai_chat.frames import (
    DONE,
    call,
    check_order,
    chunk,
    context,
    decode,
    encode,
    role,
    same,
    stop,
    text,
    thinking,
    usage,
)
from tests.recordings import Recording, load, names, recordings_root

STREAMS = names(protocol="chat", status=200, streamed=True)
ODD = {"n2", "slow_prefill_progress"}  # usage per choice; a role in every progress frame
LEGAL = [
    (engine, case)
    for engine, case in names(protocol="chat", status=200, streamed=True, ends_with_proof=True)
    if (engine.startswith("xllamacpp") and case not in ODD)
    or (engine, case) in (("vllm", "plain"), ("vllm", "json_schema"))
]


def cuts(body: bytes) -> list[list[bytes]]:
    """The body whole, by frame, byte by byte, and at random places."""
    chance = random.Random(len(body))
    places = sorted(chance.sample(range(len(body)), min(len(body), 40)))
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    frames = [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]
    rest = [body[sum(map(len, frames)) :]]
    small = body if len(body) < 60_000 else body[:60_000]
    return [[body], frames + rest, pieces] + ([[bytes([b]) for b in body]] if small is body else [])


def quirks_of(recording: Recording) -> Quirks:
    return Quirks(done_required=not recording.engine.startswith("transformers"))


def test_the_recordings_are_there() -> None:
    assert recordings_root()
    assert STREAMS


@pytest.mark.parametrize(("engine", "case"), STREAMS)
def test_recordings_decode_the_same_however_they_are_cut(engine: str, case: str) -> None:
    recording = load(engine, case)
    runs = [decode(cut) for cut in cuts(recording.response)]
    assert all(same(run) == same(runs[0]) for run in runs)
    proven = recording.index["ends_with_proof"]
    assert isinstance(runs[0][-1], Completed) == proven


@pytest.mark.parametrize(("engine", "case"), STREAMS)
def test_recordings_are_relayed_the_same_however_they_are_cut(engine: str, case: str) -> None:
    recording = load(engine, case)
    asked = bool((recording.request["body"].get("stream_options") or {}).get("include_usage"))
    outs = []
    for cut in cuts(recording.response):
        relayed = ChatRelay(context(include_usage=asked), quirks_of(recording))
        out = b"".join(map(relayed.feed, cut)) + relayed.finish()
        if relayed.evidence.error is not None:
            out += relayed.fail(relayed.evidence.error)
        outs.append((out, relayed.evidence.deltas, relayed.evidence.output_characters))
    assert all(out == outs[0] for out in outs)
    assert read(outs[0][0], asked=asked, strict=False).broken == []


@pytest.mark.parametrize(("engine", "case"), LEGAL)
def test_legal_recordings_are_relayed_byte_for_byte(engine: str, case: str) -> None:
    recording = load(engine, case)
    asked = bool((recording.request["body"].get("stream_options") or {}).get("include_usage"))
    for cut in cuts(recording.response):
        relayed = ChatRelay(context(include_usage=asked), Quirks())
        assert b"".join(map(relayed.feed, cut)) + relayed.finish() == recording.response


@pytest.mark.parametrize(("engine", "case"), STREAMS)
def test_recordings_are_written_by_the_rules(engine: str, case: str) -> None:
    events = decode([load(engine, case).response], quirks_of(load(engine, case)))
    if isinstance(events[-1], Completed):
        assert read(encode(events, include_usage=True, block=b"{}"), asked=True).broken == []
        assert read(encode(events)).broken == []


# --- garbage -------------------------------------------------------------------------------------------

GOOD = [
    role(),
    thinking("t"),
    text("a"),
    text("b"),
    call(index=0, id="c", type="function", name="f", arguments='{"a":'),
    call(index=0, arguments="1}"),
    stop("tool_calls"),
    usage(),
    DONE,
]
WORDS = [
    *GOOD,
    b"data: ",
    b"\n\n",
    b"\r\n",
    b'{"choices":[',
    b"null",
    b'"delta":{}',
    b"}",
    b"[]",
    b"\xff",
    b"event: error\n",
]


def run(reads: list[bytes]) -> list[Event]:
    decoder = CODEC.decoder(Quirks())
    events = [event for data in reads for event in decoder.feed(data)] + decoder.finish()
    check_order(events)
    assert sum(isinstance(event, Completed | Failed) for event in events) == 1
    return events


@given(st.lists(st.sampled_from(WORDS) | st.binary(max_size=20), max_size=12))
@settings(max_examples=150)
def test_garbage_ends_in_one_terminal_event(reads: list[bytes]) -> None:
    events = run(reads)
    assert same(run([b"".join(reads)])) == same(events)
    relayed = ChatRelay(context(), Quirks())
    out = b"".join(map(relayed.feed, reads)) + relayed.finish()
    assert relayed.evidence.ended
    again = ChatRelay(context(), Quirks())
    assert again.feed(b"".join(reads)) + again.finish() == out


@given(st.data())
@settings(max_examples=150)
def test_a_mutated_stream_ends_in_one_terminal_event(data: st.DataObject) -> None:
    body = bytearray(b"".join(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    half = data.draw(st.integers(0, len(body)))
    assert same(run([bytes(body)])) == same(run([bytes(body[:half]), bytes(body[half:])]))
    relayed = ChatRelay(context(), Quirks())
    relayed.feed(bytes(body))
    relayed.finish()
    assert relayed.evidence.ended


WHOLE = (
    b'{"id":"a","object":"chat.completion","choices":[{"index":0,"message":{"content":"\xc3\xa9","reasoning":"r","tool_calls":'
    b'[{"function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"stop","x":{"y":[1.5]}}],"usage":{"prompt_tokens":1}}'
)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=3))
@settings(max_examples=200)
def test_a_mutated_reply_is_refused_or_relayed(changes: list[tuple[int, int]]) -> None:
    body = bytearray(WHOLE)
    for at, byte in changes:
        body[at] = byte
    events = CODEC.decode_reply(bytes(body), Quirks())
    check_order(events)
    if isinstance(events[-1], Completed):
        assert isinstance(json.loads(CODEC.relay_reply(bytes(body), context(), events)), dict)


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_bodies_do_no_harm(body: bytes) -> None:
    for events in (CODEC.decode_reply(body, Quirks()), CODEC.decode_reply(b'{"choices":' + body, Quirks())):
        assert isinstance(events[-1], Completed | Failed)
    assert isinstance(CODEC.decode_error(500, [], body), StromError)


# --- linear work ---------------------------------------------------------------------------------------


def many_fragments(count: int) -> list[bytes]:
    opened = call(index=0, id="c", type="function", name="f", arguments='{"a":"')
    return [opened, *([call(index=0, arguments="xy")] * count), call(index=0, arguments='"}'), stop("tool_calls"), DONE]


def one_large(count: int) -> list[bytes]:
    return [text("x" * 200 * count), stop(), DONE]


def bytewise(count: int) -> list[bytes]:
    return [bytes([b]) for b in text("x" * 30 * count) + stop() + DONE]


def think_text(count: int) -> list[bytes]:
    return [text("<think>"), *([text("< ")] * count), stop(), DONE]


@pytest.mark.parametrize("build", [many_fragments, one_large, bytewise, think_text])
def test_work_grows_linearly(build: Callable[[int], list[bytes]]) -> None:
    def relay_all(reads: list[bytes]) -> None:
        relayed = ChatRelay(context(), Quirks())
        for data in reads:
            relayed.feed(data)

    for work in (decode, relay_all):
        assert_linear(lambda size, work=work: partial(work, build(size)), 250)  # type: ignore[misc]


def test_frames_may_be_megabytes() -> None:
    events = decode([role(), chunk({"content": "y" * 3_000_000}), stop(), DONE])
    assert isinstance(events[-1], Completed)
