"""A JSON schema in the subset that Anthropic's structured outputs take.

Every object says that it takes no other members; bounds, which are refused, go into the description, where the model reads
them. Only for schemas that were written for another protocol; a client of this one has written what it wants.
Source: platform.claude.com, "Structured outputs", JSON schema limitations; anthropic-sdk-python 2.14.0,
lib/_parse/_transform.py.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from strom.core import json_schema
from strom.core.errors import BadRequest
from strom.protocols.anthropic_messages import schema

_BOUNDS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


def fitted_schema(text: str, dropped: list[str]) -> Raw:
    """The same text when there is nothing to change. Raises BadRequest when it is no schema."""
    lost: dict[str, str] = {}
    try:
        given = json_schema.parse_schema(text)
        fitted = json_schema.rebuilt(given, lambda node: _fit(node, lost))
    except ValueError as error:
        raise BadRequest(f"response_format: {error}", param="response_format") from None
    dropped.extend(f"response_format {name} ({how})" for name, how in lost.items())
    return Raw(text.encode() if text and fitted == given else schema.ENCODER.encode(fitted))


def _fit(node: json_schema.Schema, lost: dict[str, str]) -> json_schema.Schema:
    if node.get("type") == "object" or "properties" in node:
        if node.get("additionalProperties", False) is not False:
            lost["additionalProperties"] = "none are allowed"
        node = {**node, "additionalProperties": False}
    bounds = {name: node[name] for name in _BOUNDS if name in node and not _is_taken(name, node[name])}
    if not bounds:
        return node
    lost.update(dict.fromkeys(bounds, "as a description"))
    told = ", ".join(f"{name}: {schema.ENCODER.encode(value).decode()}" for name, value in bounds.items())
    kept = {name: value for name, value in node.items() if name not in bounds}
    return {**kept, "description": f"{kept.get('description', '')} ({told})".lstrip()}


def _is_taken(name: str, value: Any) -> bool:
    return name == "minItems" and value in (0, 1)
