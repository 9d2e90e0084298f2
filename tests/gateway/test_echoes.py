"""What an upstream quotes of a request is not kept."""

import json
from typing import Any

import pytest

from strom.core.messages import Message, Request, TextPart, ToolCallPart, ToolResultPart
from strom.gateway.echoes import LONGEST_ERROR, PLACE, without_echoes
from tests.gateway.rig import JSON, Rig

SECRET = "my patient has a rare disease"


def request(*parts: Any) -> Request:
    return Request("openai-chat", "m", (Message("user", parts),))


def test_texts_are_replaced_wherever_they_stand() -> None:
    asked = request(
        TextPart(SECRET), ToolCallPart("c", "f", '{"secret": 1}'), ToolResultPart("c", (TextPart("tool said this"),))
    )
    told = f'Bad value {SECRET!r}; arguments {{"secret": 1}}; result tool said this'
    assert without_echoes(told, asked) == f"Bad value '{PLACE}'; arguments {PLACE}; result {PLACE}"


def test_a_line_of_a_long_text_is_one_too() -> None:
    asked = request(TextPart(f"first line here\n  {SECRET}  \nlast line here"))
    assert without_echoes(f"cannot parse: {SECRET}", asked) == f"cannot parse: {PLACE}"


def test_short_texts_are_words_like_others() -> None:
    assert without_echoes("model is busy", request(TextPart("busy"))) == "model is busy"


def test_an_endless_error_is_cut() -> None:
    assert len(without_echoes("x" * 100_000, request(TextPart("hello world")))) == LONGEST_ERROR + 1


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("status", [400, 500])
def test_the_client_sees_its_words_and_the_record_does_not(front: str, status: int) -> None:
    rig = Rig()
    exchange = rig.call(front, messages=[{"role": "user", "content": SECRET}])
    rig.upstream().response(status, JSON)
    rig.upstream().end(json.dumps({"error": {"message": f"cannot answer {SECRET!r}"}}).encode())
    assert SECRET.encode() in exchange.body_out
    assert SECRET not in str(rig.record)
    assert rig.record.error is not None
    assert PLACE in rig.record.error.message
