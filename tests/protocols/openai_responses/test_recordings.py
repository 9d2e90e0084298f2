"""Every recorded Responses exchange, cut in every way, relayed, written again, and read by the official SDK."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from strom.core.errors import BadRequest, ProviderError
from strom.core.events import Completed, Failed, Finished, TextDelta
from strom.core.fold import fold
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import CODEC
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import BLOCK, context, decode
from tests.protocols.openai_responses.official import read_stream
from tests.recordings import load, names, recordings_root

STREAMS = names(protocol="responses", streamed=True)
REPLIES = names(protocol="responses", streamed=False, status=200)


def relay(pieces: list[bytes], heartbeats: tuple[int, ...] = ()) -> bytes:
    relayed = CODEC.relay(context(), Quirks())
    out = []
    for at, piece in enumerate(pieces):
        if at in heartbeats:
            out.append(relayed.heartbeat())
        out.append(relayed.feed(piece))
    assert relayed.evidence.error is None
    return b"".join([*out, relayed.finish()])


def test_the_recordings_are_there() -> None:
    recordings_root()
    assert len(STREAMS) >= 8
    assert len(REPLIES) >= 1


@pytest.mark.parametrize(("engine", "case"), STREAMS)
class TestStreams:
    def test_cuts_do_not_matter(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        data = recording.response
        whole, relayed = decode(data), relay([data])
        assert decode(*recording.chunks) == whole
        assert decode(*(bytes([byte]) for byte in data)) == whole
        assert relay([bytes([byte]) for byte in data]) == relayed
        assert relay(recording.chunks) == relayed
        dice = random.Random(7)
        for _ in range(20):
            cuts = sorted(dice.randrange(len(data)) for _ in range(dice.randrange(1, 40)))
            pieces = [data[left:right] for left, right in pairwise([0, *cuts, len(data)])]
            assert decode(*pieces) == whole
            assert relay(pieces) == relayed

    def test_every_cut_in_two(self, engine: str, case: str) -> None:
        data = load(engine, case).response
        whole = decode(data)
        for at in range(1, len(data), 53):
            assert decode(data[:at], data[at:]) == whole

    def test_order_proof_and_content(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        events = decode(recording.response)
        checker = OrderChecker()
        for event in events:
            checker.feed(event)
        assert isinstance(events[-1], Completed)
        assert [event.raw for event in events if isinstance(event, Finished)] == [recording.index["finish_reason"]]
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert len(text) == recording.index["text_length"]
        calls = [part for part in fold(events).parts if type(part).__name__ == "ToolCallPart"]
        assert len(calls) == recording.index["tool_calls"]

    def test_every_shorter_body_is_incomplete(self, engine: str, case: str) -> None:
        frames = load(engine, case).response.split(b"\n\n")[:-1]
        for count in range(len(frames)):
            assert isinstance(decode(*(frame + b"\n\n" for frame in frames[:count]))[-1], Failed)

    def test_the_relay_keeps_what_is_legal(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        received = relay(recording.chunks)
        grammar.read(received, strict=False)
        if engine != "vllm":
            return
        for before, after in zip(recording.response.split(b"\n\n"), received.split(b"\n\n"), strict=True):
            data = after.partition(b"data: ")[2]
            assert after == before or json.loads(data)["response"]["strom"] == {"complete": True}

    def test_a_heartbeat_shifts_the_numbers(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        chunks = recording.chunks
        beats = {0, 2, len(chunks) // 2, len(chunks) - 1}
        seen = grammar.read(relay(chunks, heartbeats=tuple(beats)), strict=False)
        pings = sum(line.startswith(b":") for line in recording.response.split(b"\n"))
        assert seen.comments + seen.keepalives == len(beats) + pings
        assert seen.keepalives >= 1
        assert len(seen.text("output_text")) == recording.index["text_length"]

    def test_written_again_and_read_by_the_sdk(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        written = CODEC.encoder(context()).encode(decode(recording.response))
        grammar.read(written)
        for body in (written, relay(recording.chunks)):
            final, kinds = read_stream(body)
            assert kinds[-1] == "response.completed"
            assert final.strom == {"complete": True}
            assert len(final.output_text) == recording.index["text_length"]
            calls = [item for item in final.output if item.type == "function_call"]
            assert len(calls) == recording.index["tool_calls"]
            for call in calls:
                json.loads(call.arguments)


@pytest.mark.parametrize(("engine", "case"), REPLIES)
def test_whole_replies(engine: str, case: str) -> None:
    recording = load(engine, case)
    events = CODEC.decode_reply(recording.response, Quirks())
    assert isinstance(events[-1], Completed)
    relayed = json.loads(CODEC.relay_reply(recording.response, context(), events))
    assert relayed.pop("strom") == json.loads(BLOCK)
    assert relayed == json.loads(recording.response)
    written = json.loads(CODEC.encode_reply(fold(events), context()))
    assert written["status"] == recording.index["finish_reason"]
    assert len(written["output"][0]["content"][0]["text"]) == recording.index["text_length"]


def test_a_stream_that_nobody_asked_for_is_read_as_one() -> None:
    recording = load("transformers_tiny", "responses_nonstream")
    events = CODEC.decode_reply(recording.response, Quirks())
    assert events == decode(recording.response)
    whole = json.loads(CODEC.relay_reply(recording.response, context(), events))
    assert whole["status"] == "completed"
    assert whole["usage"]["output_tokens"] == 48


def test_error_answers() -> None:
    refused = load("xllamacpp_tools", "fewshot_responses_tools")
    error = CODEC.decode_error(refused.index["status"], [], refused.response)
    assert isinstance(error, BadRequest)
    assert "Cannot determine type" in error.message
    for engine in ("mlx_lm", "llama_cpp_python"):
        missing = load(engine, "responses_stream")
        error = CODEC.decode_error(missing.index["status"], [], missing.response)
        assert isinstance(error, ProviderError)
        assert error.code == "upstream_no_endpoint"
