"""Python functions as tools: schema from signature and docstring, arguments converted, results in two versions.

`tool` reads parameters from type hints (any type msgspec knows, pydantic models, dataclasses, TypedDicts), descriptions from
the docstring (Google's `Args:` or Sphinx' `:param x:`) or from `Annotated[…, "text"]`. A parameter annotated `ToolContext`
is not the model's: it is given by the caller of the model.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, overload

import msgspec

from strom.client.schemas import Schema, ShapeError, converter, is_pydantic, schema_of
from strom.core import messages as core
from strom.core.errors import ToolError

Converters = dict[str, Callable[[Any], Any]]


class ToolOutput(msgspec.Struct, frozen=True):
    """A result in two versions: `data` for the program, `for_model` for the model (None: `data` itself, as JSON)."""

    data: Any
    for_model: str | None = None


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool may ask for: the call it answers, and whatever was given as `tool_context=`."""

    call_id: str
    name: str
    correlation_id: str
    value: Any = None


class Tool:
    """A tool the model may call. Without a function it is only declared: its calls are the answer.

    `exits`: its result ends the run and is the value of the terminal event.
    """

    __slots__ = ("_context_name", "_converters", "description", "exits", "function", "name", "parameters")

    def __init__(self, name: str, description: str, parameters: Schema) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.exits = False
        self.function: Callable[..., Any] | None = None
        self._converters: Converters = {}
        self._context_name = ""

    @property
    def is_async(self) -> bool:
        function = self.function
        return function is not None and inspect.iscoroutinefunction(_code_of(function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, so that a decorated one can still be used."""
        if self.function is None:
            raise ToolError(f"The tool {self.name!r} is declared without a function.")
        return self.function(*args, **kwargs)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Arguments of the model, converted. Raises ShapeError, worded for the model."""
        bound: dict[str, Any] = {}
        required = set(self.parameters.get("required", ()))
        missing = sorted(required - arguments.keys())
        if missing:
            raise ShapeError(f"missing arguments: {', '.join(missing)}")
        for name, value in arguments.items():
            if name not in self._converters:
                raise ShapeError(f"unknown argument {name!r}; known are {', '.join(self._converters) or 'none'}")
            try:
                bound[name] = self._converters[name](value)
            except ShapeError as error:
                raise ShapeError(f"{name}: {error}") from None
        if self._context_name:
            bound[self._context_name] = context
        return bound

    def canonical(self) -> core.Tool:
        return core.Tool(self.name, self.description, msgspec.json.encode(self.parameters).decode())

    def _bind_function(self, function: Callable[..., Any], converters: Converters, context_name: str) -> None:
        self.function, self._converters, self._context_name = function, converters, context_name

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


ToolLike = Tool | Callable[..., Any] | Mapping[str, Any]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str = "", description: str = "", exits: bool = False) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", description: str = "", exits: bool = False
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function, sync or async, a tool.

    >>> @tool
    ... def weather(city: str, days: int = 1) -> str:
    ...     '''The weather of a city.
    ...
    ...     Args:
    ...         city: where
    ...     '''
    ...     return f"sunny in {city}"
    >>> weather.name, weather.parameters["required"]
    ('weather', ['city'])
    """
    if function is not None:
        return _from_function(function)

    def decorate(inner: Callable[..., Any]) -> Tool:
        made = _from_function(inner)
        made.name, made.description = name or made.name, description or made.description
        made.exits = exits
        return made

    return decorate


def as_tool(given: ToolLike) -> Tool:
    """A tool, a function, or a declaration as a dict (bare, or in OpenAI's or Anthropic's form)."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, Mapping):
        inner = given.get("function", given)
        parameters = inner.get("parameters", inner.get("input_schema", {"type": "object", "properties": {}}))
        return Tool(inner["name"], inner.get("description", ""), dict(parameters))
    return _from_function(given)


def model_text(data: Any) -> str:
    """What the model sees of a result: text as it is, anything else as JSON."""
    if isinstance(data, str):
        return data
    return msgspec.json.encode(data, enc_hook=_plain).decode()


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if is_pydantic(type(value)) else str(value)


# --- from a function -----------------------------------------------------------------------------


def _from_function(function: Callable[..., Any]) -> Tool:
    description, notes = _read_docstring(inspect.getdoc(function) or "")
    properties: Schema = {}
    definitions: Schema = {}
    required: list[str] = []
    converters: Converters = {}
    context_name = ""
    for parameter, kind in _parameters(function):
        if kind is ToolContext:
            context_name = parameter.name
            continue
        schema = _parameter_schema(kind, notes.get(parameter.name, ""))
        definitions.update(schema.pop("$defs", {}))
        properties[parameter.name] = schema
        converters[parameter.name] = converter(kind)
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    whole: Schema = {"type": "object", "properties": properties, "required": required}
    if definitions:
        whole["$defs"] = definitions
    made = Tool(getattr(function, "__name__", type(function).__name__), description, whole)
    made._bind_function(function, converters, context_name)
    return made


def _code_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of an object that is called like a function, its method."""
    code: Callable[..., Any] = function if inspect.isroutine(function) else type(function).__call__
    return code


def _parameters(function: Callable[..., Any]) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = typing.get_type_hints(_code_of(function), include_extras=True)
    except NameError as error:
        raise TypeError(f"{function!r}: its type hints must be known where it is defined: {error}") from None
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function!r}: a tool takes named parameters only, not {parameter}")
        found.append((parameter, hints.get(parameter.name, str)))
    return found


def _parameter_schema(kind: Any, note: str) -> Schema:
    if typing.get_origin(kind) is Annotated:
        texts = [extra for extra in kind.__metadata__ if isinstance(extra, str)]
        note = texts[0] if texts else note
    schema = schema_of(kind)
    if note and "description" not in schema:
        schema["description"] = note
    return schema


_GOOGLE_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ANY_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$|^:\w+|^>>> ", re.MULTILINE
)
_GOOGLE_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
_SPHINX_ENTRY = re.compile(r"^:param\s+(?:\w+\s+)?(\w+):\s*(.+)$", re.MULTILINE)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and the notes on parameters."""
    notes = dict(_SPHINX_ENTRY.findall(text))
    section = _GOOGLE_SECTION.search(text)
    if section is not None:
        last = ""
        for line in text[section.end() :].strip("\n").split("\n"):
            if line and not line[0].isspace():
                break
            entry = _GOOGLE_ENTRY.match(line)
            if entry is not None:
                last = entry[1]
                notes[last] = entry[2].strip()
            elif last and line.strip():
                notes[last] += " " + line.strip()
    end = _ANY_SECTION.search(text)
    return text[: end.start() if end else len(text)].strip(), notes
