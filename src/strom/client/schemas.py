"""From a Python type to a JSON schema and back: msgspec Structs, dataclasses, TypedDicts, pydantic models, plain types.

pydantic is never imported here: a model brings its own schema and validation, which are recognised by their names. A type whose
JSON is no object is wrapped in one, `{"value": …}`, since providers demand an object at the root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from strom.client.partial import NOTHING
from strom.core.json_schema import closed, problem_with, rebuilt

Schema = dict[str, Any]


class ShapeError(ValueError):
    """Data that is not of the type; the text says where and why, for the model as well."""


class Shape(msgspec.Struct, frozen=True):
    """A type as JSON. `convert` takes decoded JSON and raises ShapeError; `name` is a legal name for the schema."""

    name: str
    schema: Schema
    convert: Callable[[Any], Any]
    wrapped: bool = False

    def partial(self, value: Any) -> Any:
        """What there is so far of the answer itself; NOTHING before there is anything of it."""
        return value.get("value", NOTHING) if self.wrapped else value

    @property
    def schema_text(self) -> str:
        return json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))


def shape_of(kind: Any) -> Shape:
    """The shape of a type, or of a JSON schema given as a dict; always an object at the root."""
    if isinstance(kind, Mapping):
        schema = dict(kind)
        return Shape(_legal(str(schema.get("title", "response"))), schema, lambda value: _checked(value, schema))
    schema = rebuilt(schema_of(kind), closed)  # some providers demand that it is said
    name = _legal(getattr(kind, "__name__", "response"))
    if schema.get("type") == "object":
        return Shape(name, schema, converter(kind))
    inner = converter(kind)
    definitions = schema.pop("$defs", None)
    wrapped: Schema = {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
        "additionalProperties": False,
    }
    if definitions:
        wrapped["$defs"] = definitions
    return Shape(name, wrapped, lambda value: inner(_unwrapped(value)), wrapped=True)


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type, without a reference at its root."""
    if is_pydantic(kind):
        schema: Schema = kind.model_json_schema()
        return schema
    try:
        return _inlined(_hoisted(msgspec.json.schema(kind, schema_hook=_schema_hook)))
    except TypeError as error:
        raise TypeError(f"{kind!r} has no JSON schema: {error}") from None


def converter(kind: Any) -> Callable[[Any], Any]:
    """Decoded JSON → the type. Raises ShapeError."""
    if is_pydantic(kind):
        return lambda value: _pydantic(kind, value)
    return lambda value: _msgspec(kind, value)


def is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def read_json(text: str) -> Any:
    """Decoded JSON. Raises ShapeError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ShapeError(f"not valid JSON: {error}") from None


def _pydantic(kind: Any, value: Any) -> Any:
    try:
        return kind.model_validate(value)
    except ValueError as error:  # pydantic's ValidationError is one
        raise ShapeError(str(error)) from error


def _msgspec(kind: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        raise ShapeError(str(error)) from None


def _schema_hook(kind: type) -> Schema:
    """Of a pydantic model inside another type; of a path."""
    if is_pydantic(kind):
        return schema_of(kind)
    if _is_path(kind):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _decode_hook(kind: type, value: Any) -> Any:
    """Raises ShapeError, which convert words with its place."""
    if is_pydantic(kind):
        return _pydantic(kind, value)
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError(f"{kind!r} cannot be read from JSON")


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _hoisted(schema: Schema) -> Schema:
    """Definitions that came with an inner schema belong to the root, where references look for them."""
    found: Schema = {}

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        inner = {name: walk(item) for name, item in node.items() if name != "$defs"}
        for name, item in node.get("$defs", {}).items():
            found[name] = walk(item)
        return inner

    root: Schema = walk(schema)
    return {**root, "$defs": found} if found else root


def _checked(value: Any, schema: Schema) -> Any:
    problem = problem_with(value, schema)
    if problem:
        raise ShapeError(problem)
    return value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"value"}:
        return value["value"]
    raise ShapeError('expected an object with one member "value"')


def _inlined(schema: Schema) -> Schema:
    """The definition that the root refers to, in its place."""
    reference = schema.get("$ref", "")
    if not reference:
        return schema
    name = reference.rpartition("/")[2]
    definitions = dict(schema["$defs"])
    root = dict(definitions[name])
    if reference not in json.dumps(definitions):
        del definitions[name]
    if definitions:
        root["$defs"] = definitions
    return root


def _legal(name: str) -> str:
    """Source: openai-python ResponseFormatJSONSchema: a-z, A-Z, 0-9, underscores and dashes, at most 64 characters."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64] or "response"
