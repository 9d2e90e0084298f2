"""The short way for plain replies agrees with the long one, and is taken for nothing else."""

import json
from typing import Any

import pytest

from strom.core.evidence import Evidence
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_chat import CODEC
from strom.protocols.openai_chat.reply import is_plain
from strom.protocols.openai_chat.schema import decode_chunk

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 4}}
MESSAGE = {"role": "assistant", "content": 'Hé"llo\n'}


def reply(message: Any = None, choice: dict[str, Any] | None = None, **members: Any) -> bytes:
    first = {"index": 0, "message": message or MESSAGE, "finish_reason": "stop", **(choice or {})}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [first], "usage": USAGE}
    return json.dumps({**whole, **members}).encode()


def context() -> ReplyContext:
    return ReplyContext("r", "r", "asked", 5, block=lambda: b'{"complete":true}')


def facts(evidence: Evidence) -> dict[str, Any]:
    return {name: getattr(evidence, name) for name in Evidence.__slots__}


def long_way(body: bytes, quirks: Quirks) -> tuple[bytes, Evidence]:
    evidence = Evidence()
    events = CODEC.decode_reply(body, quirks)
    evidence.observe(events)
    return b"" if evidence.error else CODEC.relay_reply(body, context(), events), evidence


@pytest.mark.parametrize("body", [reply(), reply(x_unknown={"kept": [1]}), reply(choice={"logprobs": None})])
def test_a_plain_reply(body: bytes) -> None:
    assert is_plain(decode_chunk(body))
    evidence = Evidence()
    out = CODEC.relay_whole(body, context(), Quirks(), evidence)
    long, long_evidence = long_way(body, Quirks())
    assert out == long
    assert facts(evidence) == facts(long_evidence)
    assert evidence.complete


OTHERS = [
    reply({"role": "assistant", "content": "<think>a</think>b"}),
    reply({"role": "assistant", "content": " </think>b"}),
    reply({"role": "assistant", "content": ""}),
    reply({"role": "assistant", "content": None, "refusal": "no"}),
    reply({"role": "assistant", "content": [{"type": "text", "text": "a"}]}),
    reply({"role": "assistant", "content": "a", "reasoning": "b"}),
    reply({"content": "a"}),
    reply(choice={"finish_reason": "length"}),
    reply(choice={"finish_reason": None}),
    reply(choice={"stop_reason": "END"}),
    reply(choice={"index": 1}),
    reply(usage=None),
    reply(id=None),
    reply(id=7),
    reply(object="x"),
    reply(created=None),
    reply(model=None),
    reply(choices=[]),
    reply(error={"message": "broken"}),
    b"<html>",
    b"",
    b"[1]",
    b'data: {"a":1}\n\n',
]


@pytest.mark.parametrize("body", OTHERS)
def test_everything_else_goes_the_long_way(body: bytes) -> None:
    evidence = Evidence()
    out = CODEC.relay_whole(body, context(), Quirks(), evidence)
    long, long_evidence = long_way(body, Quirks())
    assert out == long
    left, right = facts(evidence), facts(long_evidence)
    assert repr(left.pop("error")) == repr(right.pop("error"))
    assert left == right


def test_a_preopened_thought_is_no_plain_text() -> None:
    evidence = Evidence()
    CODEC.relay_whole(
        reply({"role": "assistant", "content": "a</think>b"}), context(), Quirks(think_preopened=True), evidence
    )
    assert evidence.first_token_kind == "thinking"
