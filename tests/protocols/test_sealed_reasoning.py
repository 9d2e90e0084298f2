"""Sealed reasoning survives a round trip to its maker through clients of another protocol, and goes to nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.evidence import Evidence
from strom.core.fold import fold
from strom.protocols.codec import Quirks, ReplyContext, Target
from strom.protocols.table import CODECS

SUMMARY = [{"type": "summary_text", "text": "hm"}]
ITEMS: dict[str, dict[str, Any]] = {
    "with its text": {"id": "rs_1", "type": "reasoning", "summary": SUMMARY, "encrypted_content": "SEAL"},
    "without": {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "SEAL"},
}


def reply_of(item: dict[str, Any]) -> bytes:
    text = {"type": "output_text", "text": "a", "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    return json.dumps({"id": "r", "object": "response", "status": "completed", "output": [item, message]}).encode()


def turn_of(item: dict[str, Any]) -> dict[str, Any]:
    """What a Messages client gets of a Responses upstream's reply, as it gives it back."""
    events = CODECS["openai-responses"].decode_reply(reply_of(item), Quirks())
    context = ReplyContext("r1", "t1", "m", 1)
    whole = json.loads(CODECS["anthropic"].encode_reply(fold(events), context))
    encoder = CODECS["anthropic"].encoder(context)
    streamed = encoder.encode(events).decode()
    seal = next(block.get("signature") or block.get("data") for block in whole["content"] if block["type"] != "text")
    assert seal in streamed
    return {"role": "assistant", "content": whole["content"]}


def asked_with(turn: dict[str, Any]) -> bytes:
    user = {"role": "user", "content": "hi"}
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [user, turn, user]}).encode()


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_reasoning_of_a_responses_upstream_comes_back_to_it(item: dict[str, Any]) -> None:
    request = CODECS["anthropic"].decode_request(asked_with(turn_of(item)))
    sent = json.loads(CODECS["openai-responses"].encode_request(request, Target("up", stream=True)).body)
    assert next(each for each in sent["input"] if each.get("type") == "reasoning") == item


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_and_goes_to_no_other(item: dict[str, Any]) -> None:
    body = asked_with(turn_of(item))
    request = CODECS["anthropic"].decode_request(body)
    for behind in ("openai-chat", "anthropic", "ollama"):
        assert b"SEAL" not in CODECS[behind].encode_request(request, Target("up", stream=True)).body
    relayed = CODECS["anthropic"].relay_request(body, request, Target("up", stream=True))
    assert b"SEAL" not in relayed.body
    assert relayed.dropped == ("messages[1] thinking (another maker's)",)


def test_own_seals_are_relayed_untouched() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "SEAL"},
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "text", "text": "a"},
    ]
    body = asked_with({"role": "assistant", "content": blocks})
    call = CODECS["anthropic"].relay_request(body, CODECS["anthropic"].decode_request(body), Target("m", stream=False))
    assert json.loads(call.body)["messages"] == json.loads(body)["messages"]
    assert call.dropped == ()


def test_seals_are_asked_for_when_the_client_can_give_them_back() -> None:
    def included(**members: Any) -> Any:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **members}
        request = CODECS["anthropic"].decode_request(json.dumps(body).encode())
        return json.loads(CODECS["openai-responses"].encode_request(request, Target("up", stream=True)).body).get(
            "include"
        )

    assert included(thinking={"type": "enabled", "budget_tokens": 2000}) == ["reasoning.encrypted_content"]
    assert included() is None
    assert included(thinking={"type": "disabled"}) is None


@pytest.mark.parametrize("front", list(CODECS))
def test_a_client_with_no_place_for_them_is_told(front: str) -> None:
    evidence = Evidence()
    for item in ITEMS.values():
        evidence.observe(CODECS["openai-responses"].decode_reply(reply_of(item), Quirks()))
    told = [] if front in ("anthropic", "openai-responses") else ["thinking signature", "redacted_thinking"]
    assert evidence.lost_to(front) == told
