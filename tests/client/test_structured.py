"""Structured answers: whole and streamed, validated at the end, repaired once if wanted (section 6 D; rows M-65, N-14)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from strom.client.events import StreamErrorReason, StreamPartial
from strom.client.schemas import ShapeError, shape_of
from tests.client.rig import DONE, Answer, Rig, completed, content, failed, finish, refused


class PersonStruct(msgspec.Struct):
    name: str
    age: int


class PersonModel(pydantic.BaseModel):
    name: str
    age: int


@dataclasses.dataclass
class PersonData:
    name: str
    age: int


class PersonDict(TypedDict):
    name: str
    age: int


SCHEMA = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS = [PersonStruct, PersonModel, PersonData, PersonDict, SCHEMA]
TEXT = '{"name": "Ann", "age": 41}'


def answer(*texts: str) -> Answer:
    return Answer((*(content(text) for text in texts), finish("stop"), DONE))


@pytest.mark.parametrize("kind", KINDS)
def test_whole(kind: Any) -> None:
    rig = Rig([answer(TEXT)])
    value = completed(rig.play(into=kind)).value
    assert (value if isinstance(value, dict) else vars_of(value)) == {"name": "Ann", "age": 41}
    sent = rig.bodies()[0]["response_format"]["json_schema"]
    assert set(sent["schema"]["properties"]) == {"name", "age"}
    assert sent["schema"]["type"] == "object"


def vars_of(value: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else dict(vars(value))


def test_streamed_partial_values_as_they_become_parseable() -> None:
    rig = Rig([answer('{"na', 'me": "A', 'nn", "a', 'ge": 4', "1}")])
    events = rig.play(into=PersonStruct)
    partial = [event.value for event in events if isinstance(event, StreamPartial)]
    assert partial == [{}, {"name": "A"}, {"name": "Ann"}, {"name": "Ann", "age": 41}]
    assert completed(events).value == PersonStruct("Ann", 41)
    assert not any(event.type == "content" for event in events)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_invalid_is_told(kind: Any) -> None:
    end = failed(Rig([answer('{"name": "Ann", "age": "old"}')]).play(into=kind))
    assert end.reason == StreamErrorReason.INCOMPLETE_COMPLETION
    assert "age" in end.detail
    assert end.metadata.text == '{"name": "Ann", "age": "old"}'


@pytest.mark.parametrize("text", ["no json", '{"name": "Ann"', ""])
def test_no_object_is_no_answer(text: str) -> None:
    assert failed(Rig([answer(text or " ")]).play(into=PersonStruct)).reason == StreamErrorReason.INCOMPLETE_COMPLETION


def test_a_fence_and_a_preface_are_left_out() -> None:
    assert completed(Rig([answer("Here:\n```json\n", TEXT, "\n```")]).play(into=PersonStruct)).value.age == 41


def test_one_repair_round() -> None:
    rig = Rig([answer('{"name": 1}'), answer(TEXT)])
    events = rig.play(into=PersonStruct, repair=True)
    assert completed(events).value == PersonStruct("Ann", 41)
    assert completed(events).metadata.requests == 2
    last = rig.bodies()[1]["messages"][-1]
    assert last["role"] == "user"
    assert "not the object" in last["content"]
    rig = Rig([answer("{}"), answer("{}")])
    failed(rig.play(into=PersonStruct, repair=True))
    assert len(rig.sent) == 2


@pytest.mark.parametrize(("kind", "text", "value"), [(list[int], "[1,2]", [1, 2]), (int, "3", 3), (str, '"x"', "x")])
def test_types_that_are_no_objects_are_wrapped(kind: Any, text: str, value: object) -> None:
    rig = Rig([answer(f'{{"value": {text}}}')])
    assert completed(rig.play(into=kind)).value == value
    assert failed(Rig([answer('{"other": 1}')]).play(into=kind)).detail.endswith('"value"')


def test_n14_schema_refused_goes_into_the_prompt_once() -> None:
    rig = Rig([refused(400, "response_format is not supported"), answer(TEXT)])
    metadata = completed(rig.play(into=PersonStruct)).metadata
    second = rig.bodies()[1]
    assert "response_format" not in second
    assert "JSON schema" in second["messages"][0]["content"]
    assert metadata.request_duration_ms == pytest.approx(400)  # one clock for both
    failed(Rig([refused(400), refused(400)]).play(into=PersonStruct))


def test_where_response_format_is_ignored_the_schema_is_in_the_prompt() -> None:
    rig = Rig([answer(TEXT)], name="mlx-lm/m")
    completed(rig.play("Who?", system="Be brief.", into=PersonStruct))
    body = rig.bodies()[0]
    assert "response_format" not in body
    assert body["messages"][0]["content"].startswith("Be brief.")
    assert '"age"' in body["messages"][0]["content"]


def test_a_cut_object_is_no_value() -> None:
    end = failed(Rig([Answer((content('{"name": "An'), finish("length"), DONE))]).play(into=PersonStruct))
    assert end.metadata.finish_reason == "length"


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


def test_recursive_types_keep_their_definitions() -> None:
    shape = shape_of(Node)
    assert shape.schema["type"] == "object"
    assert "Node" in shape.schema["$defs"]
    assert json.loads(shape.schema_text) == shape.schema


def test_a_type_without_a_schema_is_told() -> None:
    with pytest.raises(TypeError, match="schema"):
        shape_of(type)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (1, {"type": "string"}, "$: expected string, got"),
        (True, {"type": "integer"}, "$: expected integer, got"),
        (1.0, {"type": "integer"}, ""),
        (None, {"type": ["string", "null"]}, ""),
        ({"a": [1, "x"]}, {"properties": {"a": {"items": {"type": "integer"}}}}, "$.a[1]: expected integer, got"),
        ("c", {"enum": ["a", "b"]}, "$: "),
        ("c", {"const": "a"}, "$: is not the one allowed value"),
        (5, {"maximum": 4}, "$: maximum is 4"),
        (4, {"exclusiveMinimum": 4}, "$: exclusiveMinimum is 4"),
        ([], {"minItems": 1}, "$: minItems is 1"),
        ("", {"minLength": 1}, "$: minLength is 1"),
        ({"b": 1}, {"properties": {}, "additionalProperties": False}, "$: 'b' is not expected"),
        ({}, {"required": ["a"]}, "$: 'a' is missing"),
        (1, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "$: fits none of the allowed forms"),
        (1, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, ""),
        (
            {"a": 1},
            {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}},
            "$.a: expected null, got",
        ),
        (1, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "the schema is too complex"),
        ({"a": 1}, {"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, "$: 'b' is missing"),
    ],
)
def test_answers_are_checked_against_a_schema(value: object, schema: dict[str, Any], problem: str) -> None:
    convert = shape_of(schema).convert
    if not problem:
        assert convert(value) == value
        return
    with pytest.raises(ShapeError) as caught:
        convert(value)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("kind", [PersonStruct, PersonModel, PersonData, PersonDict, list[PersonStruct]])
def test_objects_take_no_other_members(kind: Any) -> None:
    schema = shape_of(kind).schema
    assert schema["additionalProperties"] is False
    assert all(inner["additionalProperties"] is False for inner in schema.get("$defs", {}).values())
    assert "additionalProperties" in shape_of(dict[str, int]).schema
    assert shape_of(dict[str, int]).schema["additionalProperties"] == {"type": "integer"}


def test_pydantic_models_inside_other_types() -> None:
    rig = Rig([answer('{"value": [{"name": "Ann", "age": 1}]}'), answer('{"value": [{"name": "Ann", "age": "x"}]}')])
    assert completed(rig.play(into=list[PersonModel])).value == [PersonModel(name="Ann", age=1)]
    assert "age" in failed(rig.play(into=list[PersonModel])).detail
    with pytest.raises(TypeError):
        shape_of(list[object])


def test_partial_values_of_a_wrapped_type_are_of_the_type() -> None:
    reads = [content(text) for text in ('{"val', 'ue": [', "1, 2", ", 3]", "}")]
    events = Rig([Answer((*reads, finish("stop"), DONE))]).play(into=list[int])
    assert [event.value for event in events if isinstance(event, StreamPartial)] == [[], [1], [1, 2, 3]]
    assert completed(events).value == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int | None, '{"value": null}', None),
        (int | str, '{"value": "x"}', "x"),
        (Path, '{"value": "a/b"}', Path("a/b")),
        (list[Path], '{"value": ["a"]}', [Path("a")]),
    ],
)
def test_types_that_are_no_objects_are_wrapped_in_one(kind: Any, text: str, value: object) -> None:
    assert shape_of(kind).schema["type"] == "object"
    assert completed(Rig([answer(text)]).play(into=kind)).value == value
