"""A body of countless small things is refused before it is decoded; long text is not."""

from __future__ import annotations

import contextlib
import json

import pytest

from strom.core.errors import BadRequest
from strom.gateway.intricacy import MAX_CONTAINERS, refuse_intricacy
from tests.gateway.rig import Rig
from tests.patience import assert_cpu_below

TURN = '{"role":"user","content":"a"}'
MANY = 60_000


@pytest.mark.parametrize("front", ["openai-chat", "anthropic", "ollama"])
def test_too_many_messages_are_told_in_the_caller_s_protocol(front: str) -> None:
    rig = Rig()
    exchange = rig.call_raw(front, f'{{"model":"m","max_tokens":5,"messages":[{",".join([TURN] * MANY)}]}}'.encode())
    assert exchange.status == 400
    assert rig.record.status == "rejected"
    assert rig.record.error is not None
    assert rig.record.error.code == "invalid_request"


@pytest.mark.parametrize("inner", ["[]", "{}", "[1]", '{"a":1}', "[ 1 ]"])
def test_it_counts_whatever_they_hold(inner: str) -> None:
    with pytest.raises(BadRequest):
        refuse_intricacy(b'{"tools":[' + b",".join([inner.encode()] * 200_000) + b"]}")


@pytest.mark.parametrize("text", ["{}" * 400_000, '[{"a": "b\\"}"}]' * 90_000, "\\" * 600_000 + "[{" * 100_000])
def test_text_may_hold_what_it_likes(text: str) -> None:
    refuse_intricacy(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode())


def test_a_long_session_of_an_agent_is_no_bomb() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"path": "x" * 200, "lines": [1, 2]}}
    turns = [{"role": "assistant", "content": [block]} for _ in range(5000)]
    body = json.dumps({"messages": turns}).encode()
    assert body.count(b"{") + body.count(b"[") < MAX_CONTAINERS
    refuse_intricacy(body)


@pytest.mark.parametrize("piece", [b'"",', b'"[', b'\\"[', b'"\\[', b'[{"', b"[\\"])
def test_its_own_work_is_bounded(piece: bytes) -> None:
    body = b'"' + piece * 3_000_000

    def work() -> None:
        with contextlib.suppress(BadRequest):
            refuse_intricacy(body)

    assert_cpu_below(5, work)
