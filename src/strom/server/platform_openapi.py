"""The OpenAPI document of `/platform/v1`, made from the table of operations and the types that serve it.

Source: OpenAPI Specification 3.1.1; schemas are JSON Schema 2020-12, as `msgspec.json.schema_components` gives them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from strom.server.platform_operations import OPERATIONS, Operation
from strom.server.problems import MEDIA_TYPE, Problem

VERSION = "1.0"
"""Of the API, not of the program."""
_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 405, 413, 500, 503)
Node = dict[str, Any]
_ID: Node = {
    "description": "Names this answer, in the log too.", "schema": {"type": "string"},
}  # fmt: skip
_NAMES = {
    "key": "A key by its name, its id or its prefix.",
    "trace_id": "Id of a call, as in x-strom-trace-id.",
}


@cache
def document() -> bytes:
    """Indented JSON with a line at the end."""
    return json.dumps(make_document(), indent=2, ensure_ascii=False).encode() + b"\n"


def make_document() -> Node:
    shapes = [shape for each in OPERATIONS for shape in (each.body, each.answer) if shape is not None]
    _, schemas = msgspec.json.schema_components([*dict.fromkeys(shapes), Problem], ref_template=_REF)
    paths: dict[str, Node] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Strom platform API",
            "version": VERSION,
            "description": "Keys, limits, usage, traces and endpoints of a gateway, for its operators. Where keys are "
            "required only admin keys may ask; `x-api-key` carries a key as well. Lists come in pages: `next_cursor` is null "
            "on the last one. A query parameter that is empty text counts as absent.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {name: _served(schemas[name]) for name in sorted(schemas)},
            "responses": {"Problem": _response("What went wrong.", _ref("Problem"), MEDIA_TYPE)},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Node:
    names = re.findall(r"\{(\w+)\}", operation.path)
    answer = _ref(operation.answer.__name__) if operation.answer is not None else {"type": "object"}
    responses = {str(operation.status): _response(HTTPStatus(operation.status).phrase, answer, "application/json")}
    for status in sorted({*_ALWAYS, *operation.errors, *([415] if operation.body is not None else [])}):
        responses[str(status)] = {"$ref": "#/components/responses/Problem"}
    node: Node = {
        "operationId": operation.name,
        "tags": [operation.path.split("/")[3].partition(".")[0]],
        "summary": operation.summary,
        "parameters": [*(_name(name) for name in names), *_parameters(operation.query)],
        "responses": responses,
    }
    if operation.body is not None:
        required = any(field.required for field in msgspec.structs.fields(operation.body))
        content = {"application/json": {"schema": _ref(operation.body.__name__)}}
        node["requestBody"] = {"required": required, "content": content}
    return node


def _parameters(query: type[msgspec.Struct]) -> list[Node]:
    _, found = msgspec.json.schema_components([query], ref_template=_REF)
    shape: Node = found[query.__name__]
    return [_parameter(name, schema, name in shape["required"]) for name, schema in shape["properties"].items()]


def _parameter(name: str, schema: Node, required: bool) -> Node:  # noqa: FBT001 - as the schema says
    """A parameter that is absent is not null: that alternative falls away."""
    schema = _served(schema)
    alternatives = [each for each in schema.pop("anyOf", []) if each != {"type": "null"}]
    if len(alternatives) == 1:
        schema |= alternatives[0]
    elif alternatives:
        schema["anyOf"] = alternatives
    if schema.get("default", 0) is None:
        del schema["default"]
    if "anyOf" in schema:
        schema.pop("type", None)
        schema.pop("minLength", None)
    node = {"name": name, "in": "query", "required": required}
    if "description" in schema:
        node["description"] = schema.pop("description")
    if schema.get("type") == "array":
        node |= {"style": "form", "explode": False}
    return {**node, "schema": schema}


def _name(name: str) -> Node:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": _NAMES[name], "schema": schema}


def _response(words: str, schema: Node, kind: str) -> Node:
    return {"description": words, "headers": {"x-strom-trace-id": _ID}, "content": {kind: {"schema": schema}}}


def _ref(name: str) -> Node:
    return {"$ref": _REF.format(name=name)}


def _served(schema: Any) -> Any:
    """As it is served: amounts are numbers (`encode_usage`); descriptions without the line breaks of docstrings. Bounds are
    written in one way: `typing` takes equal annotations for one, so 1 and 1.0 depend on what was imported first."""
    match schema:
        case float() if schema.is_integer():
            return int(schema)
        case {"type": "string", "format": "decimal"}:
            return {"type": "number"}
        case dict():
            return {name: _words(inner) if name == "description" else _served(inner) for name, inner in schema.items()}
        case list():
            return [_served(inner) for inner in schema]
        case _:
            return schema


def _words(text: Any) -> Any:
    return " ".join(text.split()) if isinstance(text, str) else _served(text)
