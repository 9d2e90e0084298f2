"""Frames, contexts and runs from which the tests of this folder are put together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from strom.core.events import Event, Failed
from strom.core.fold import Fold
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_chat import CODEC
from strom.protocols.openai_chat.relay import ChatRelay
from tests.grammar.openai_chat import ChatGrammar, read

BLOCK = b'{"complete":true}'
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


def data(value: Any) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def chunk(delta: Any = None, reason: str | None = None, **members: Any) -> bytes:
    """One frame with one choice; `members` are added to the chunk, `choice` to the choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason, **members.pop("choice", {})}
    return bare(choices=[choice], **members)


def bare(**members: Any) -> bytes:
    """One frame with nothing but the envelope and these members."""
    base = {"id": "chatcmpl-u", "object": "chat.completion.chunk", "created": 1760000000, "model": "m"}
    return data({name: value for name, value in {**base, **members}.items() if value is not ...})


def role() -> bytes:
    return chunk({"role": "assistant", "content": ""})


def text(words: str) -> bytes:
    return chunk({"content": words})


def thinking(words: str) -> bytes:
    return chunk({"reasoning_content": words})


def call(**part: Any) -> bytes:
    """A frame with one tool call part; `name` and `arguments` go into its function."""
    function = {name: part.pop(name) for name in ("name", "arguments") if name in part}
    return chunk({"tool_calls": [{**part, "function": function}]})


def stop(reason: str = "stop", **members: Any) -> bytes:
    return chunk({}, reason, **members)


def usage(**numbers: Any) -> bytes:
    return bare(choices=[], usage={**USAGE, **numbers})


def context(*, include_usage: bool = False, block: bytes | None = None, **members: Any) -> ReplyContext:
    given = {"reply_id": "r1", "request_id": "t1", "model": "alias", "created": 1750000000, **members}
    return ReplyContext(include_usage=include_usage, block=lambda: block, **given)


def decode(frames: Iterable[bytes], quirks: Quirks | None = None) -> list[Event]:
    """Each frame as one read; the order of the events is checked."""
    decoder = CODEC.decoder(quirks or Quirks())
    events = [event for frame in frames for event in decoder.feed(frame)]
    events += decoder.finish()
    check_order(events)
    return events


def check_order(events: list[Event]) -> None:
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    assert checker.ended


def folded(events: list[Event]) -> Fold:
    fold = Fold()
    fold.feed(events)
    return fold


def failure(events: list[Event]) -> Any:
    """The error the stream ended with."""
    last = events[-1]
    assert isinstance(last, Failed)
    return last.error


def same(events: list[Event]) -> list[Any]:
    """Events in a form that can be compared: errors by class and words."""
    return [(type(e.error), e.error.message) if isinstance(e, Failed) else e for e in events]


def relay(
    frames: Iterable[bytes], *, asked: bool = False, quirks: Quirks | None = None, **members: Any
) -> tuple[bytes, ChatRelay]:
    """Each frame as one read, to its end; an error is worded as the gateway would."""
    relayed = ChatRelay(context(include_usage=asked, **members), quirks or Quirks())
    out = b"".join(relayed.feed(frame) for frame in frames) + relayed.finish()
    if relayed.evidence.error is not None:
        out += relayed.fail(relayed.evidence.error)
    return out, relayed


def legal_relay(frames: Iterable[bytes], *, asked: bool = False, **members: Any) -> tuple[ChatGrammar, ChatRelay]:
    """A relayed stream that keeps the rules of relayed streams."""
    out, relayed = relay(frames, asked=asked, **members)
    seen = read(out, asked=asked, strict=False)
    assert seen.broken == []
    return seen, relayed


def encode(events: Iterable[Event], **members: Any) -> bytes:
    encoder = CODEC.encoder(context(**members))
    return b"".join(encoder.encode([event]) for event in events)
