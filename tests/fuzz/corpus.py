"""What is mutated: the recorded answers of real servers, by protocol.

There are no recordings of Ollama: its lines are the recorded streams as our own encoder puts them into its words.
"""

from __future__ import annotations

import random

import msgspec

from strom.core.fold import fold
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from tests.fuzz.contexts import make_context
from tests.recordings import load, names

RECORDED = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses"}
MOST_FRAMES = 14
"""Of a longer stream its beginning, a stretch out of its middle, and its end are taken."""


class Answer(msgspec.Struct, frozen=True):
    protocol: str
    streamed: bool
    data: bytes

    @property
    def mark(self) -> bytes:
        """What ends a frame."""
        if self.protocol == "ollama":
            return b"\n"
        return b"\r\n\r\n" if b"\r\n\r\n" in self.data else b"\n\n"


def load_answers() -> list[Answer]:
    """Streams, whole replies and bodies of errors."""
    found = []
    for recorded, protocol in RECORDED.items():
        for engine, case in names(protocol=recorded):
            recording = load(engine, case)
            found.append(Answer(protocol, bool(recording.index["streamed"]), recording.response))
    return found + _ollama(found)


def load_requests() -> list[Answer]:
    """The bodies that were asked with."""
    found = []
    for recorded, protocol in RECORDED.items():
        for engine, case in names(protocol=recorded):
            body = load(engine, case).request.get("body")
            if body is not None:
                found.append(Answer(protocol, False, msgspec.json.encode(body)))
    shapes = {answer.data for answer in found if answer.protocol == "openai-chat"}
    return found + [Answer("ollama", False, data) for data in sorted(shapes)]


def _ollama(answers: list[Answer]) -> list[Answer]:
    found = []
    for answer in answers:
        if not answer.streamed or len(answer.data) > 20_000:
            continue
        decoder = CODECS[answer.protocol].decoder(Quirks())
        events = decoder.feed(answer.data) + decoder.finish()
        if type(events[-1]).__name__ == "Completed":
            encoder = CODECS["ollama"].encoder(make_context("ollama"))
            found.append(Answer("ollama", True, encoder.encode(events)))
            whole = CODECS["ollama"].encode_reply(fold(events), make_context("ollama"))
            found.append(Answer("ollama", False, whole))
    return found


def frames_of(answer: Answer, draw: random.Random) -> list[bytes]:
    """The frames of a stream with their ends, not too many of them."""
    mark = answer.mark
    frames = [frame + mark for frame in answer.data.split(mark) if frame.strip()]
    if len(frames) <= MOST_FRAMES:
        return frames
    begin = draw.randrange(3, len(frames) - 8)
    return frames[:3] + frames[begin : begin + 5] + frames[-6:]
