"""Rows M-60, M-61, and section 6 H: what a session remembers, and what of it is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import strom
from strom.client.session import AsyncSession, SessionOptions
from strom.core.messages import Message, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tests.client.rig import DONE, Answer, Rig, call, calls_answer, content, finish, refused, text_answer


class Talk:
    """A session whose answers are scripted."""

    def __init__(self, *answers: Answer, **options: Any) -> None:
        self.rig = Rig(answers)
        given: SessionOptions = {"system": "Be brief.", **options}  # type: ignore[typeddict-item]  # the tests' own
        self.session: AsyncSession = self.rig.model.session(**given)

    def say(self, prompt: str, *, events: int | None = None, **options: Any) -> None:
        """Reads all of the answer, or so many events and closes."""
        stream = self.session.stream(prompt, **options)
        self.rig.run, self.rig.tools = stream._run, stream._tools
        while self.rig.step():
            pass
        taken = 0
        while stream._events and (events is None or taken < events):
            stream._events.popleft()
            taken += 1
            if stream._run.over and not stream._events:
                stream._run.delivered()
        stream._run.close(self.rig.now)

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.session.messages]


def test_m60_both_sides_of_a_turn_are_remembered() -> None:
    talk = Talk(text_answer("one"), text_answer("two"))
    talk.say("first")
    talk.say("second")
    assert [message.text for message in talk.session.messages] == ["Be brief.", "first", "one", "second", "two"]
    assert [message["content"] for message in talk.rig.bodies()[1]["messages"]] == [
        "Be brief.",
        "first",
        "one",
        "second",
    ]


def test_m60_only_after_full_consumption() -> None:
    talk = Talk(text_answer("one"))
    talk.say("first", events=1)
    assert talk.roles == ["system"]


@pytest.mark.parametrize(
    "answer", [refused(500), Answer((content("half"),)), Answer((content("half"), finish("length"), DONE))]
)
def test_history_is_as_before_after_a_failure(answer: Answer) -> None:
    talk = Talk(answer, text_answer("ok"))
    talk.say("first")
    assert talk.roles == ["system"]
    talk.say("second")
    assert [message["role"] for message in talk.rig.bodies()[1]["messages"]] == ["system", "user"]


def test_metrics_after_use_failure_and_close() -> None:
    talk = Talk(text_answer(), refused(500), text_answer())
    assert talk.session.last_stream_metrics == strom.StreamMetrics()
    talk.say("a")
    assert talk.session.last_stream_metrics.first_token_kind == "content"
    talk.say("b")
    assert talk.session.last_stream_metrics.request_duration_ms == pytest.approx(100)
    talk.say("c", events=0)
    assert talk.session.last_stream_metrics.first_token_kind == "content"


def f() -> str:
    return "result"


def test_tools_of_a_turn_are_remembered_with_it() -> None:
    talk = Talk(calls_answer(call("c1", "f", "{}")), text_answer("done"), text_answer(), options={"tools": [f]})
    talk.say("first")
    assert talk.roles == ["system", "user", "assistant", "user", "assistant"]
    talk.say("second")
    assert [message["role"] for message in talk.rig.bodies()[2]["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


def test_m61_oldest_turns_are_not_sent_but_the_system_prompt_always_is() -> None:
    talk = Talk(*[text_answer("a") for _ in range(4)], max_context=4, count_tokens=lambda message: 1)
    for number in range(4):
        talk.say(f"q{number}")
    sent = [[message["content"] for message in body["messages"]] for body in talk.rig.bodies()]
    assert sent[3] == ["Be brief.", "q2", "a", "q3"]
    assert len(talk.session.messages) == 9


def test_pairs_of_call_and_result_leave_together() -> None:
    answers = [calls_answer(call("c1", "f", "{}")), text_answer("done"), text_answer("two")]
    talk = Talk(*answers, options={"tools": [f]}, max_context=5, count_tokens=lambda message: 1)
    talk.say("first")
    talk.say("second")
    assert [message["role"] for message in talk.rig.bodies()[2]["messages"]] == ["system", "user"]


def test_an_oversized_prompt_is_told_and_forgotten() -> None:
    talk = Talk(max_context=50)
    with pytest.raises(strom.ContextOverflow, match="max_context allows 50") as caught:
        talk.session.stream("x" * 1000)
    assert (caught.value.limit, talk.roles) == (50, ["system"])


def test_no_limit() -> None:
    talk = Talk(text_answer(), max_context=None)
    talk.say("x" * 200_000)
    assert len(talk.roles) == 3


def test_save_and_load(tmp_path: Path) -> None:
    talk = Talk(calls_answer(call("c1", "f", "{}")), text_answer("done"), options={"tools": [f]})
    talk.say("first")
    talk.session.save(tmp_path / "s.json")
    again = AsyncSession.load(talk.rig.model, tmp_path / "s.json")
    assert again.messages == talk.session.messages
    assert AsyncSession.load(talk.rig.model, talk.session.to_json()).messages == talk.session.messages
    model = strom.Model("m", base_url="http://upstream:1")
    assert strom.Session.load(model, tmp_path / "s.json").messages == talk.session.messages


def test_thinking_and_its_signature_survive() -> None:
    talk = Talk()
    parts = (ThinkingPart("hm", signature="sig", origin="anthropic"), TextPart("yes"))
    result = ToolResultPart("c", (TextPart("r"),), name="f")
    history = talk.session.history
    history.turns.append((Message("user", (TextPart("q"),)), Message("assistant", (*parts, ToolCallPart("c", "f", "{}"))),
                          Message("user", (result,))))  # fmt: skip
    assert AsyncSession.load(talk.rig.model, talk.session.to_json()).messages == talk.session.messages


@pytest.mark.parametrize(
    "data", [b"{}", b"nonsense", b'{"version": 2}', b"[]", b'{"version":1,"turns":[[{"role":"x"}]]}']
)
def test_what_is_no_saved_session_is_told(data: bytes) -> None:
    with pytest.raises(strom.BadRequest):
        AsyncSession.load(Talk().rig.model, data)


def test_a_conversation_from_elsewhere() -> None:
    messages = [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q2"},
    ]  # fmt: skip
    talk = Talk(messages=messages)
    assert [len(turn) for turn in talk.session.history.turns] == [4, 1]
    assert talk.session.history.system == "Be brief.\n\nRules."


def test_a_continued_answer_is_one_answer() -> None:
    talk = Talk(text_answer(" a time."))
    talk.say("A story", continue_from="Once upon")
    assert [message.text for message in talk.session.messages] == ["Be brief.", "A story", "Once upon a time."]


def test_saved_form_is_plain_json() -> None:
    saved = json.loads(Talk().session.to_json())
    assert saved == {"version": 1, "system": "Be brief.", "max_context": 32768, "turns": []}
