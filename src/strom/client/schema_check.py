"""Checks a value against a JSON schema given as a dict: the part of JSON Schema that providers accept for answers.

Checked: type, enum, const, required, properties, additionalProperties false, items, anyOf, local $ref, numeric and length
bounds. Anything else is not looked at. Source: json-schema.org, draft 2020-12, "Validation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound,
    "maxItems": lambda value, bound: len(value) <= bound,
}
_FOR_TYPE: dict[str, tuple[type, ...]] = {"minimum": (int, float), "maximum": (int, float), "exclusiveMinimum": (int, float),
             "exclusiveMaximum": (int, float), "minLength": (str,), "maxLength": (str,), "minItems": (list,),
             "maxItems": (list,)}  # fmt: skip


def problem_with(value: Any, schema: Schema) -> str:
    """The first thing that is wrong, with its place; "" when nothing is."""
    return next(_problems(value, schema, "$", schema), "")


def _problems(value: Any, schema: Schema, where: str, root: Schema) -> Iterator[str]:
    schema = _resolved(schema, root)
    yield from _own_problems(value, schema, where)
    choices = schema.get("anyOf")
    if choices and all(next(_problems(value, choice, where, root), "") for choice in choices):
        yield f"{where}: fits none of the allowed forms"
    if isinstance(value, dict):
        yield from _object_problems(value, schema, where, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{where}[{index}]", root)


def _own_problems(value: Any, schema: Schema, where: str) -> Iterator[str]:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    if names and not any(_is_a(value, name) for name in names):
        yield f"{where}: expected {' or '.join(names)}, got {type(value).__name__}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of the allowed values"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: expected {schema['const']!r}"
    for name, holds in _BOUNDS.items():
        if name in schema and isinstance(value, _FOR_TYPE[name]) and not holds(value, schema[name]):
            yield f"{where}: {name} is {schema[name]}"


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, (object,)))


def _object_problems(value: dict[str, Any], schema: Schema, where: str, root: Schema) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: {name!r} is missing"
    for name, item in value.items():
        if name in properties:
            yield from _problems(item, properties[name], f"{where}.{name}", root)
        elif schema.get("additionalProperties") is False:
            yield f"{where}: {name!r} is not expected"


def _resolved(schema: Schema, root: Schema) -> Schema:
    for _ in range(32):  # a chain of references longer than that is a circle
        reference = schema.get("$ref", "")
        if not reference.startswith("#/"):
            return schema
        found: Any = root
        for part in reference[2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        schema = found
    return {}
