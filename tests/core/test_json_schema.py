"""The check of a value against a caller's schema: what it sees, and that it cannot be made to work without end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from strom.core.json_schema import closed, is_strict, parse_schema, problem_with, rebuilt, strict_form, unchecked
from tests.patience import assert_cpu_below

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"name": "Ada", "age": 36}, ""),
        ({"name": "Ada", "age": 36.0}, ""),
        ({"age": 1}, "$: 'name' is missing"),
        ({"name": ""}, "$.name: minLength is 1"),
        ({"name": "Ada", "age": -1}, "$.age: minimum is 0"),
        ({"name": "Ada", "age": True}, "$.age: expected integer, got boolean"),
        ({"name": "Ada", "size": 1}, "$: 'size' is not expected"),
        ([], "$: expected object, got array"),
    ],
)
def test_objects(value: Any, problem: str) -> None:
    assert problem_with(value, PERSON) == problem


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": [1, "a"]}, 1, True),
        ({"const": None}, None, 0),
        ({"type": ["string", "null"]}, None, 1),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "a", 1),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1.5, 1),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1, 2], [1, "2"]),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "b"}),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}}, {"a": None}, {"a": 1}),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["v"]}, {"v": 1, "next": {"v": 2}}, {"v": 1, "next": {}}),
        ({"exclusiveMinimum": 0}, 1, 0),
        ({"minProperties": 1}, {"a": 1}, {}),
        (True, 1, None),
    ],
)
def test_keywords(schema: Any, good: Any, bad: Any) -> None:
    assert problem_with(good, schema) == ""
    assert schema is True or problem_with(bad, schema)


def test_what_is_not_looked_at_is_named_and_never_run() -> None:
    schema = {"type": "string", "pattern": "(a+)+$", "format": "date", "title": "t"}
    assert unchecked(schema) == ["format", "pattern"]
    assert problem_with("a" * 40 + "b", schema) == ""


@pytest.mark.parametrize("reference", ["http://127.0.0.1/x.json", "other.json#/a", "#/$defs/none", 1])
def test_references_that_lead_out_are_no_proof(reference: Any) -> None:
    assert "reference" in problem_with({}, {"$ref": reference})


def test_work_is_bounded() -> None:
    layers = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 4} for n in range(40)}
    bomb = {"$ref": "#/$defs/l0", "$defs": {**layers, "l40": {"const": 1}}}
    for schema in (bomb, {"$ref": "#"}):
        assert "too complex" in problem_with(2, schema)
        assert_cpu_below(2, lambda schema=schema: problem_with(2, schema))  # type: ignore[misc]


@pytest.mark.parametrize("schema", [{"type": 7}, {"enum": 3}, {"required": 1}, {"anyOf": 2}, {"minimum": "x"}])
def test_a_broken_schema_is_a_problem_and_no_crash(schema: Any) -> None:
    assert problem_with({"a": 1}, schema) or problem_with(1, schema)


@pytest.mark.parametrize("text", ["[]", "{", "1", '{"items":' * 200 + "{}" + "}" * 200])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        parse_schema(text)
    assert parse_schema("") == {}


def test_strict_forms() -> None:
    assert rebuilt({"properties": {"a": {}}}, closed) == {"properties": {"a": {}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert not is_strict(opened)
    assert strict_form(json_text(opened)) == json_text({"additionalProperties": False, **opened})
    assert strict_form(json_text(PERSON)) is None, "age is optional"
    assert strict_form('{"type":"array"}') is None


def json_text(schema: Any) -> str:
    return msgspec.json.encode(schema).decode()
