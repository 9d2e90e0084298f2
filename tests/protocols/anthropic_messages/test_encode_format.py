"""Schemas of other protocols in the subset that Anthropic's structured outputs take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest
from strom.protocols.anthropic_messages.encode_format import fitted_schema


def fitted(schema: Any) -> tuple[Any, list[str]]:
    dropped: list[str] = []
    return json.loads(bytes(fitted_schema(json.dumps(schema), dropped))), dropped


def test_what_fits_stays_byte_for_byte() -> None:
    text = '{ "type":"object","properties":{"a":{"type":"array","minItems":1}},"additionalProperties": false }'
    dropped: list[str] = []
    assert bytes(fitted_schema(text, dropped)) == text.encode()
    assert dropped == []
    assert bytes(fitted_schema("", dropped)) == b"{}"


def test_objects_are_closed_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {"type": "object", "properties": {"a": {"anyOf": [inner, {"$ref": "#/$defs/x"}]}}, "$defs": {"x": inner}}
    found, dropped = fitted(schema)
    assert found["additionalProperties"] is False
    assert found["properties"]["a"]["anyOf"][0]["additionalProperties"] is False
    assert found["$defs"]["x"]["additionalProperties"] is False
    assert dropped == []


def test_what_it_refuses_is_told_to_the_model_and_named() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 3, "description": "d"},
            "b": {"type": "array", "minItems": 2},
        },
        "additionalProperties": {"type": "string"},
    }
    found, dropped = fitted(schema)
    assert found["properties"]["a"] == {"type": "string", "description": "d (maxLength: 3)"}
    assert found["properties"]["b"] == {"type": "array", "description": "(minItems: 2)"}
    assert dropped == [
        "response_format maxLength (as a description)",
        "response_format minItems (as a description)",
        "response_format additionalProperties (none are allowed)",
    ]


@pytest.mark.parametrize("text", ["[]", "{", '{"items":' * 150 + "{}" + "}" * 150])
def test_what_is_no_schema_is_the_callers_error(text: str) -> None:
    with pytest.raises(BadRequest, match="response_format"):
        fitted_schema(text, [])
