"""Rows M-62 to M-64, B-22 to B-24, N-13, and section 6 G: tools from functions, their rounds and their results."""

import asyncio
import dataclasses
import threading
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

import strom
from strom.client.events import StreamContent, StreamErrorReason, StreamEvent, StreamToolCall, StreamToolResult
from strom.client.tools import as_tool
from tests.client.rig import (
    DONE,
    Answer,
    Rig,
    call,
    calls_answer,
    chunk,
    completed,
    content,
    failed,
    finish,
    text_answer,
)
from tests.patience import PATIENCE_S


class PointModel(pydantic.BaseModel):
    x: int


class PointStruct(msgspec.Struct):
    x: int


@dataclasses.dataclass
class PointData:
    x: int


class PointDict(TypedDict):
    x: int


def results(events: list[StreamEvent]) -> list[StreamToolResult]:
    return [event for event in events if isinstance(event, StreamToolResult)]


def run_once(tool: Any, arguments: str, **options: Any) -> tuple[Rig, StreamToolResult]:
    """One round with one call; the name of the tool is `f`."""
    rig = Rig([calls_answer(call("c1", "f", arguments)), text_answer()])
    found = results(rig.play(tools=[tool], **options))
    return rig, found[0]


def model_saw(rig: Rig) -> str:
    text = rig.bodies()[1]["messages"][-1]["content"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("kind", [PointModel, PointStruct, PointData, PointDict])
def test_arguments_of_every_kind_are_converted(kind: Any) -> None:
    seen: list[object] = []

    def f(point: kind, times: int = 2) -> int:
        seen.append(point)
        return times

    _, result = run_once(f, '{"point":{"x":3}}')
    assert result.result == 2
    assert seen == [kind(x=3)]
    assert type(seen[0]) is (dict if kind is PointDict else kind)


@pytest.mark.parametrize("kind", [PointModel, PointStruct, PointData, PointDict])
def test_invalid_arguments_go_back_to_the_model(kind: Any) -> None:
    def f(point: kind) -> int:
        raise AssertionError("not reached")

    rig, result = run_once(f, '{"point":{"x":"many"}}')
    assert result.error is not None
    assert result.error.startswith("invalid arguments: point:")
    assert "int" in model_saw(rig)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [('{"a":', "JSON"), ("[1]", "object"), ("{}", "missing arguments: a"), ('{"a":"x","b":1}', "unknown argument 'b'")],
)
def test_broken_arguments_fail_that_call_only(arguments: str, words: str) -> None:
    def f(a: str) -> str:
        return a

    rig = Rig([calls_answer(call("c1", "f", arguments), call("c2", "f", '{"a":"ok"}', 1)), text_answer()])
    first, second = results(rig.play(tools=[f]))
    assert words in str(first.error)
    assert second.result == "ok"


def test_schema_from_signature_and_docstring() -> None:
    def weather(city: str, days: Annotated[int, "how many"] = 1, unit: str = "C") -> str:
        """The weather of a city.

        It is always sunny.

        Args:
            city: where, and
                in which country
            unit (str): C or F

        Returns:
            words
        """
        return city

    made = strom.tool(weather)
    assert made.description == "The weather of a city.\n\nIt is always sunny."
    properties = made.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "where, and in which country"}
    assert (properties["days"]["type"], properties["days"]["description"]) == ("integer", "how many")
    assert properties["unit"]["description"] == "C or F"
    assert made.parameters["required"] == ["city"]
    assert made("Rome") == "Rome"


def test_sphinx_docstring_names_and_descriptions() -> None:
    @strom.tool(name="other", description="Mine")
    def f(a: int) -> int:
        """:param int a: the number"""
        return a

    assert (f.name, f.description, f.parameters["properties"]["a"]["description"]) == ("other", "Mine", "the number")


def test_nested_types_have_their_definitions() -> None:
    def f(points: list[PointStruct], other: PointModel | None = None) -> int:
        return len(points)

    made = strom.tool(f)
    assert "PointStruct" in made.parameters["$defs"]


def test_what_cannot_be_a_tool_is_told() -> None:
    with pytest.raises(TypeError, match="named parameters"):
        strom.tool(lambda *args: args)

    def f(a: object, b: type[int]) -> None: ...

    with pytest.raises(TypeError):
        strom.tool(f)


def test_declarations_of_openai_and_anthropic() -> None:
    schema = {"type": "object", "properties": {}}
    openai = as_tool({"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}})
    anthropic = as_tool({"name": "f", "description": "d", "input_schema": schema})
    assert (openai.name, openai.parameters) == (anthropic.name, anthropic.parameters) == ("f", schema)
    with pytest.raises(strom.ToolError):
        openai()


def test_m62_unknown_tool_and_exceptions_become_results() -> None:
    def f() -> None:
        raise KeyError("gone")

    rig = Rig([calls_answer(call("c1", "f", "{}"), call("c2", "ghost", "{}", 1)), text_answer()])
    first, second = results(rig.play(tools=[f]))
    assert first.error == "KeyError: 'gone'"
    assert "no tool 'ghost'" in str(second.error)
    assert rig.bodies()[1]["messages"][-2]["content"] == "Error: KeyError: 'gone'"


def test_m62_parallel_runs_at_once_and_answers_in_call_order() -> None:
    gate = threading.Barrier(2, timeout=PATIENCE_S)

    def f(a: int) -> int:
        gate.wait()  # only passes when both run
        return a

    rig = Rig([calls_answer(call("c1", "f", '{"a":1}'), call("c2", "f", '{"a":2}', 1)), text_answer()])
    assert [item.result for item in results(rig.play(tools=[f], parallel_tools=2))] == [1, 2]


def test_m62_serial_is_the_default() -> None:
    running: list[int] = []

    def f(a: int) -> int:
        assert not running
        running.append(a)
        running.pop()
        return threading.get_ident()

    rig = Rig([calls_answer(call("c1", "f", '{"a":1}'), call("c2", "f", '{"a":2}', 1)), text_answer()])
    assert {item.result for item in results(rig.play(tools=[f]))} == {threading.get_ident()}


def test_async_tools() -> None:
    async def f(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    assert run_once(f, '{"a":1}')[1].result == 2


def test_m63_ten_rounds_then_one_without_tools() -> None:
    def f() -> str:
        return "again"

    rig = Rig([calls_answer(call(f"c{turn}", "f", "{}")) for turn in range(10)] + [text_answer("enough")])
    completed(rig.play(tools=[f]))
    assert rig.rounds == 10
    assert "tools" in rig.bodies()[9]
    assert "tools" not in rig.bodies()[10]


def test_m63_no_rounds_means_no_tools_any_more() -> None:
    rig = Rig([text_answer("enough")])
    completed(rig.play(tools=[lambda: "never"], max_rounds=0))
    assert "tools" not in rig.bodies()[0]


def test_m63_without_a_final_round_the_cap_is_an_error() -> None:
    def f() -> str:
        return "again"

    rig = Rig([calls_answer(call("c", "f", "{}"))] * 2)
    end = failed(rig.play(tools=[f], max_rounds=2, final_round=False))
    assert end.reason == StreamErrorReason.UNEXPECTED_TOOL_CALLS
    assert "2 rounds" in end.detail


def test_m63_calls_in_the_final_round_are_unexpected() -> None:
    def f() -> str:
        return "again"

    rig = Rig([calls_answer(call("c", "f", "{}"))] * 2)
    assert failed(rig.play(tools=[f], max_rounds=1)).reason == StreamErrorReason.UNEXPECTED_TOOL_CALLS


def test_anthropic_keeps_its_tools_in_the_final_round() -> None:
    rig = Rig([], name="anthropic/claude", model={"api_key": "k"})
    rig.open(tools=[{"name": "f"}])
    wish = msgspec.structs.replace(rig.run.job.wish, last_round=True)
    body = msgspec.json.decode(rig.run.job.build(wish)[0].request.body)
    assert body["tool_choice"] == {"type": "none"}
    assert body["tools"][0]["name"] == "f"


def test_m64_run_tools_false_gives_the_calls_as_the_answer() -> None:
    def f(a: int) -> int:
        raise AssertionError("not run")

    rig = Rig([calls_answer(call("c1", "f", '{"a":1}'))])
    end = completed(rig.play(tools=[f], run_tools=False))
    assert end.metadata.tool_calls == (strom.ToolCall("c1", "f", {"a": 1}, '{"a":1}'),)
    assert rig.run.reply is not None
    assert rig.run.reply.tool_calls == end.metadata.tool_calls


def test_a_declared_tool_is_left_to_the_caller() -> None:
    rig = Rig([calls_answer(call("c1", "f", "{}"))])
    assert completed(rig.play(tools=[{"name": "f"}])).metadata.finish_reason == "tool_calls"


def test_b23_exit_tool_ends_the_run_with_its_result() -> None:
    @strom.tool(exits=True)
    def f(summary: str) -> dict[str, str]:
        return {"said": summary}

    rig = Rig([calls_answer(call("c1", "f", '{"summary":"x"}'))])
    assert completed(rig.play(tools=[f])).value == {"said": "x"}


def test_b23_an_exit_tool_that_fails_does_not_end_it() -> None:
    @strom.tool(exits=True)
    def f(summary: int) -> int:
        return summary

    rig, result = run_once(f, '{"summary":"x"}')
    assert result.error
    assert len(rig.sent) == 2


def test_b24_two_versions_of_a_result() -> None:
    def f() -> strom.ToolOutput:
        return strom.ToolOutput(data={"rows": [1, 2]}, for_model="2 rows")

    rig, result = run_once(f, "{}")
    assert result.result == {"rows": [1, 2]}
    assert model_saw(rig) == "2 rows"


@pytest.mark.parametrize(
    ("value", "seen"),
    [("text", "text"), ({"a": 1}, '{"a":1}'), (None, "null"), (PointModel(x=1), '{"x":1}'), ({1, 2}, "[1,2]")],
)
def test_results_as_the_model_sees_them(value: object, seen: str) -> None:
    def f() -> object:
        return value

    assert model_saw(run_once(f, "{}")[0]) == seen


def test_n13_arguments_in_a_fence() -> None:
    def f(a: int) -> int:
        return a

    assert run_once(f, '```json\n{"a": 1}\n```')[1].result == 1


def test_context_is_given_and_not_the_models() -> None:
    def f(a: int, context: strom.ToolContext) -> str:
        return f"{context.value}-{context.call_id}-{a}"

    assert "context" not in strom.tool(f).parameters["properties"]
    assert run_once(f, '{"a":1}', tool_context="mine")[1].result == "mine-c1-1"


def test_streaming_before_during_and_after_tools() -> None:
    def f() -> str:
        return "x"

    first = Answer((content("Let me see."), call("c1", "f", "{}"), finish("tool_calls"), DONE))
    rig = Rig([first, text_answer("Done.")])
    events = rig.play(tools=[f])
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["StreamContent", "StreamToolCall", "StreamToolResult", "StreamContent", "StreamCompleted"]
    assert completed(events).metadata.text == "Let me see.Done."
    assert rig.run.reply is not None
    assert rig.run.reply.text == "Done."
    roles = [message.role for message in rig.run.reply.messages]
    assert roles == ["assistant", "user", "assistant"]


def test_a_required_choice_does_not_go_on_for_ever() -> None:
    def f() -> str:
        return "x"

    rig = Rig([calls_answer(call("c1", "f", "{}")), text_answer()])
    rig.play(tools=[f], config=strom.CompletionConfig(tool_choice="required"))
    assert rig.bodies()[0]["tool_choice"] == "required"
    assert "tool_choice" not in rig.bodies()[1]


def test_length_with_calls_is_never_upgraded() -> None:
    rig = Rig([Answer((chunk({"role": "assistant"}), call("c1", "f", '{"a'), finish("length"), DONE))])
    end = failed(rig.play(tools=[{"name": "f"}]))
    assert (end.reason, end.metadata.finish_reason) == (StreamErrorReason.INCOMPLETE_COMPLETION, "length")
    assert end.metadata.tool_calls[0].invalid


def test_tool_call_events_come_as_soon_as_a_call_is_complete() -> None:
    frames = call("c1", "f", "{}"), content("and"), finish("tool_calls"), DONE
    rig = Rig([Answer(frames)])
    events = rig.play(tools=[{"name": "f"}])
    assert [type(event) for event in events[:2]] == [StreamToolCall, StreamContent]


def test_two_tools_of_one_name_are_told() -> None:
    with pytest.raises(strom.BadRequest, match="same name"):
        Rig([]).open(tools=[{"name": "f"}, {"name": "f"}])
