"""Every recorded Messages exchange, cut in every way, relayed, translated back, and read by the official SDK."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from strom.core.errors import BadRequest, ProviderError
from strom.core.events import Completed, Event, Failed, Finished, TextDelta
from strom.core.fold import fold
from strom.core.order import OrderChecker
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks
from tests.grammar import anthropic as grammar
from tests.protocols.anthropic_messages.frames import BLOCK, context
from tests.protocols.anthropic_messages.official import read_stream
from tests.recordings import Recording, load, names, recordings_root

STREAMS = names(protocol="anthropic", streamed=True)
REPLIES = names(protocol="anthropic", streamed=False, status=200)


def decode(pieces: list[bytes]) -> list[Event]:
    decoder = CODEC.decoder(Quirks())
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()


def relay(pieces: list[bytes]) -> bytes:
    relayed = CODEC.relay(context(), Quirks())
    return b"".join([*map(relayed.feed, pieces), relayed.finish()])


def test_the_recordings_are_there() -> None:
    recordings_root()
    assert len(STREAMS) >= 9
    assert len(REPLIES) >= 2


@pytest.mark.parametrize(("engine", "case"), STREAMS)
class TestStreams:
    def test_cuts_do_not_matter(self, engine: str, case: str) -> None:
        data = load(engine, case).response
        whole = decode([data])
        assert decode([bytes([byte]) for byte in data]) == whole
        assert decode(load(engine, case).chunks) == whole
        dice = random.Random(7)
        for _ in range(20):
            cuts = sorted(dice.randrange(len(data)) for _ in range(dice.randrange(1, 40)))
            places = [0, *cuts, len(data)]
            pieces = [data[left:right] for left, right in pairwise(places)]
            assert decode(pieces) == whole
            assert relay(pieces) == relay([data])

    def test_order_proof_and_content(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        events = decode([recording.response])
        checker = OrderChecker()
        for event in events:
            checker.feed(event)
        assert isinstance(events[-1], Completed if recording.index["ends_with_proof"] else Failed)
        finished = next(event for event in events if isinstance(event, Finished))
        assert finished.raw == recording.index["finish_reason"]
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert len(text) == recording.index["text_length"]
        assert (
            sum(part.__class__.__name__ == "ToolCallPart" for part in fold(events).parts)
            == recording.index["tool_calls"]
        )

    def test_every_shorter_body_is_incomplete(self, engine: str, case: str) -> None:
        frames = load(engine, case).response.split(b"\n\n")[:-1]
        for count in range(0, len(frames), 7):
            assert isinstance(decode([frame + b"\n\n" for frame in frames[:count]])[-1], Failed)

    def test_the_relay_changes_only_what_it_must(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        sent, received = recording.response.split(b"\n\n"), relay(recording.chunks).split(b"\n\n")
        assert len(sent) == len(received)
        for before, after in zip(sent, received, strict=True):
            block = b"message_delta" in before and after == before[:-1] + b',"strom":' + BLOCK + b"}"
            bare_call = b'"tool_use"' in before and b'"input"' not in before and after.endswith(b',"input":{}}}')
            assert after == before or block or bare_call
        grammar.read(relay(recording.chunks), strict=False)

    def test_translated_again_and_read_by_the_sdk(self, engine: str, case: str) -> None:
        recording = load(engine, case)
        events = decode([recording.response])
        written = CODEC.encoder(context()).encode(events)
        grammar.read(written)
        for body in (written, relay(recording.chunks)):
            message = read_stream(body)
            assert message.stop_reason == recording.index["finish_reason"]
            text = "".join(block.text for block in message.content if block.type == "text")
            assert len(text) == recording.index["text_length"]
            assert sum(block.type == "tool_use" for block in message.content) == recording.index["tool_calls"]


@pytest.mark.parametrize(("engine", "case"), REPLIES)
def test_whole_replies(engine: str, case: str) -> None:
    recording = load(engine, case)
    events = CODEC.decode_reply(recording.response, Quirks())
    assert isinstance(events[-1], Completed)
    assert CODEC.relay_reply(recording.response, context(), events) == (
        recording.response.rstrip()[:-1] + b',"strom":' + BLOCK + b"}"
    )
    written = json.loads(CODEC.encode_reply(fold(events), context()))
    assert written["stop_reason"] == recording.index["finish_reason"]
    assert len("".join(block["text"] for block in written["content"])) == recording.index["text_length"]


def error_of(recording: Recording) -> Exception:
    return CODEC.decode_error(recording.index["status"], [], recording.response)


def test_error_answers() -> None:
    bad = error_of(load("vllm", "anthropic_err"))
    assert isinstance(bad, BadRequest)
    assert "max_tokens" in bad.message
    for engine in ("mlx_lm", "transformers_tiny", "llama_cpp_python"):
        assert isinstance(error_of(load(engine, "anthropic_stream")), ProviderError)
