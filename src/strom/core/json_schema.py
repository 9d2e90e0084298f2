"""JSON schemas as data: whether a value fits one, and how to change every schema inside of one.

Schemas come from callers. So no regular expression of theirs is run, no reference that leads out of the schema is followed, and
the work is bounded in steps and depth (docs/decisions/0013-answers-checked-by-a-subset.md). Keywords that are not looked
at are named by `unchecked`. Source: json-schema.org, draft 2020-12, "Validation" and "Core" section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

import msgspec

Schema = dict[str, Any]
MAX_STEPS = 50_000
MAX_DEPTH = 100
_DECODE = msgspec.json.Decoder().decode
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_NUMBERS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: bool(value >= bound),
    "maximum": lambda value, bound: bool(value <= bound),
    "exclusiveMinimum": lambda value, bound: bool(value > bound),
    "exclusiveMaximum": lambda value, bound: bool(value < bound),
}
_LENGTHS: dict[str, tuple[type[Sized], Callable[[int, Any], bool]]] = {
    "minLength": (str, lambda size, bound: bool(size >= bound)),
    "maxLength": (str, lambda size, bound: bool(size <= bound)),
    "minItems": (list, lambda size, bound: bool(size >= bound)),
    "maxItems": (list, lambda size, bound: bool(size <= bound)),
    "minProperties": (dict, lambda size, bound: bool(size >= bound)),
    "maxProperties": (dict, lambda size, bound: bool(size <= bound)),
}
_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties")
_CHECKED = frozenset(
    ("type", "enum", "const", "required", "$ref", *_NUMBERS, *_LENGTHS, *_MAPS, *_LISTS, *_SINGLES)
)  # fmt: skip
_ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment")
)


def parse_schema(text: str) -> Schema:
    """Raises ValueError when the text is no JSON object, or one that is nested too deeply."""
    try:
        schema = _DECODE(text or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"the JSON schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("a JSON schema has to be an object")
    rebuilt(schema, lambda node: node)
    return schema


def rebuilt(schema: Schema, change: Callable[[Schema], Schema], depth: int = 0) -> Schema:
    """A copy with every schema inside of it, innermost first, replaced by what `change` makes of it."""
    if depth > MAX_DEPTH:
        raise ValueError("the JSON schema is nested too deeply")

    def inner(node: Any) -> Any:
        return rebuilt(node, change, depth + 1) if isinstance(node, dict) else node

    copy = dict(schema)
    for name in _MAPS:
        if isinstance(copy.get(name), dict):
            copy[name] = {key: inner(node) for key, node in copy[name].items()}
    for name in _LISTS:
        if isinstance(copy.get(name), list):
            copy[name] = [inner(node) for node in copy[name]]
    for name in _SINGLES:
        if name in copy:
            copy[name] = inner(copy[name])
    return change(copy)


def unchecked(schema: Schema) -> list[str]:
    """Keywords in use that `problem_with` does not look at, in order."""
    found: dict[str, None] = {}

    def note(node: Schema) -> Schema:
        found.update(dict.fromkeys(name for name in node if name not in _CHECKED and name not in _ANNOTATIONS))
        return node

    rebuilt(schema, note)
    return sorted(found)


def closed(node: Schema) -> Schema:
    """For `rebuilt`: an object of known members that says nothing of others takes none."""
    if isinstance(node.get("properties"), dict):
        return {"additionalProperties": False} | node
    return node


def strict_form(text: str) -> str | None:
    """The schema as text with its objects closed, if it then meets OpenAI's rule for strict ones. Raises ValueError."""
    shut = rebuilt(parse_schema(text), closed)
    return msgspec.json.encode(shut).decode() if is_strict(shut) else None


def is_strict(schema: Schema) -> bool:
    """Whether every object names all its members as required and takes no others: OpenAI's rule for `strict`.

    Source: platform.openai.com, "Structured outputs", supported schemas.
    """
    loose: list[Schema] = []

    def look(node: Schema) -> Schema:
        if node.get("type") == "object" or "properties" in node:
            members = node.get("properties")
            named = isinstance(members, dict) and set(members) == set(node.get("required") or ())
            if not named or node.get("additionalProperties") is not False:
                loose.append(node)
        return node

    rebuilt(schema, look)
    return not loose and schema.get("type") == "object"


def problem_with(value: Any, schema: Schema) -> str:
    """The first thing that is wrong with a decoded JSON value, with its place; "" when nothing is."""
    try:
        return next(_Check(schema).problems(value, schema, "$", 0), "")
    except _TooComplex:
        return "the schema is too complex for the answer to be checked"
    except (TypeError, ValueError, AttributeError) as error:
        return f"the schema cannot be used to check the answer: {error}"


class _TooComplex(Exception):
    """More work than a check may be."""


class _Check:
    """One check: a schema at its root, and how many steps it has taken."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = 0

    def problems(self, value: Any, schema: Any, where: str, depth: int) -> Iterator[str]:
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_DEPTH:
            raise _TooComplex
        if schema is False:
            yield f"{where}: is not expected"
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            yield from self.problems(value, self._referred(schema["$ref"]), where, depth + 1)
        yield from _own_problems(value, schema, where)
        yield from self._combined(value, schema, where, depth)
        if isinstance(value, dict):
            yield from self._members(value, schema, where, depth)
        elif isinstance(value, list):
            yield from self._items(value, schema, where, depth)

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        return not next(self.problems(value, schema, "", depth + 1), "")

    def _combined(self, value: Any, schema: Schema, where: str, depth: int) -> Iterator[str]:
        for part in schema.get("allOf", ()):
            yield from self.problems(value, part, where, depth + 1)
        if "anyOf" in schema and not any(self._fits(value, choice, depth) for choice in schema["anyOf"]):
            yield f"{where}: fits none of the allowed forms"
        if "oneOf" in schema and sum(self._fits(value, choice, depth) for choice in schema["oneOf"]) != 1:
            yield f"{where}: does not fit exactly one of the allowed forms"

    def _members(self, value: dict[str, Any], schema: Schema, where: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where}: {name!r} is missing"
        others = schema.get("additionalProperties", True)
        if "patternProperties" in schema:
            others = True  # which members are others, only the patterns could tell
        for name, item in value.items():
            if name in properties:
                yield from self.problems(item, properties[name], f"{where}.{name}", depth + 1)
            elif others is False:
                yield f"{where}: {name!r} is not expected"
            else:
                yield from self.problems(item, others, f"{where}.{name}", depth + 1)

    def _items(self, value: list[Any], schema: Schema, where: str, depth: int) -> Iterator[str]:
        first = schema.get("prefixItems", ())
        for at, item in enumerate(value):
            wanted = first[at] if at < len(first) else schema.get("items", True)
            yield from self.problems(item, wanted, f"{where}[{at}]", depth + 1)

    def _referred(self, reference: Any) -> Any:
        """What a reference inside of the schema leads to. Any other cannot be followed, so it cannot be checked."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ValueError(f"the reference {reference!r} leads out of it")
        found: Any = self._root
        for part in reference[2:].split("/") if reference != "#" else ():
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise ValueError(f"the reference {reference!r} leads nowhere")
            found = found[name]
        return found


def _own_problems(value: Any, schema: Schema, where: str) -> Iterator[str]:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    if names and not any(_is_a(value, name) for name in names):
        yield f"{where}: expected {' or '.join(map(str, names))}, got {_name_of(value)}"
        return
    if "enum" in schema and not any(_same(value, allowed) for allowed in schema["enum"]):
        yield f"{where}: is none of the allowed values"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where}: is not the one allowed value"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for name, holds in _NUMBERS.items():
            if name in schema and not holds(value, schema[name]):
                yield f"{where}: {name} is {schema[name]}"
    for name, (kind, fits) in _LENGTHS.items():
        if name in schema and isinstance(value, kind) and not fits(len(value), schema[name]):
            yield f"{where}: {name} is {schema[name]}"


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, ()))


def _name_of(value: Any) -> str:
    return next((name for name in _TYPES if _is_a(value, name)), "something else")


def _same(value: Any, allowed: Any) -> bool:
    """Equal as JSON: true is no 1."""
    return isinstance(value, bool) is isinstance(allowed, bool) and bool(value == allowed)
