"""Reads tables into structs and reports everything that is wrong with them, not only the first thing.

`msgspec.convert` stops at the first error; here every value is converted on its own. A value that does not fit is reported
and replaced by its default, or by an empty value where there is none, so that the checks that follow can go on. Values are
never repeated in a message, except words out of a closed list: a wrong value may be a key in the wrong place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_WHERE = re.compile(r" - at `\$(?P<path>.*)`$")
_BLANKS: dict[object, object] = {str: "", int: 0, float: 0.0, bool: False, tuple: ()}
_KEY_NAMES = frozenset(("key", "api_key", "apikey", "api-key", "token", "secret", "password"))


class Problems:
    """Errors and warnings of one load, in the order of their finding; each is `path: what`."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def add(self, path: str, what: str) -> None:
        self.errors.append(f"{path}: {what}" if path else what)

    def warn(self, path: str, what: str) -> None:
        self.warnings.append(f"{path}: {what}")


def read_table(shape: type[T], value: object, path: str, problems: Problems) -> T:
    """A struct of that shape, whatever `value` is: what does not fit is in `problems`."""
    present = read_fields(shape, value, path, problems)
    for name in _required(shape):
        if name in present:
            continue
        if isinstance(value, dict) and name not in value:
            problems.add(join(path, name), "is missing")
        present[name] = _blank(_hints(shape)[name])
    return shape(**present)


def read_fields(shape: type[msgspec.Struct], value: object, path: str, problems: Problems) -> dict[str, Any]:
    """Only the fields that are there and fit."""
    if not isinstance(value, dict):
        problems.add(path, "expected a table")
        return {}
    hints = _hints(shape)
    found: dict[str, Any] = {}
    for name, item in value.items():
        where = join(path, name)
        if name not in hints:
            problems.add(where, _unknown(name, hints))
            continue
        known, result = _read_value(hints[name], item, where, problems)
        if known:
            found[name] = result
    return found


def join(path: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name)
    return f"{path}.{shown}" if path else shown


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def explain(hint: Any, item: object, error: msgspec.ValidationError) -> str:
    """What was expected, in the words of a configuration, without the value."""
    choices = _choices(hint)
    if choices:
        near = suggestion(item, choices) if isinstance(item, str) else ""
        return f"expected one of {', '.join(choices)}{near}"
    described = [
        meta.description for one in _members(hint) for meta in getattr(one, "__metadata__", ()) if meta.description
    ]
    if described:
        return f"expected {described[0]}"
    text = _WHERE.sub("", str(error)).replace("`", "")
    text = text.replace("float", "number").replace("object", "table").replace("array", "list")
    return text[:1].lower() + text[1:]


def _unknown(name: str, hints: dict[str, Any]) -> str:
    if name.lower() in _KEY_NAMES:
        holder = next((known for known in ("api_key_env", "key_env") if known in hints), "api_key_env")
        return f"a key never stands in the file: put it into an environment variable and name that in {holder}, or into a file"
    return f"unknown key{suggestion(name, hints)}"


def _read_value(hint: Any, item: object, path: str, problems: Problems) -> tuple[bool, Any]:
    shape, row_shape = _struct_in(hint), _row_in(hint)
    if shape is not None and (row_shape is None or not isinstance(item, list)):
        return isinstance(item, dict), read_table(shape, item, path, problems)
    shape = row_shape
    if shape is None:
        return _read_leaf(hint, item, path, problems)
    if not isinstance(item, list):
        problems.add(path, "expected a list of tables")
        return False, None
    rows = tuple([read_table(shape, row, f"{path}[{at}]", problems) for at, row in enumerate(item)])
    return all(isinstance(row, dict) for row in item), rows


def _read_leaf(hint: Any, item: object, path: str, problems: Problems) -> tuple[bool, Any]:
    try:
        return True, msgspec.convert(item, hint)
    except msgspec.ValidationError as error:
        inner = _WHERE.search(str(error))
        problems.add(path + (inner["path"] if inner else ""), explain(hint, item, error))
        return False, None


@cache
def _hints(shape: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


@cache
def _required(shape: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple([field.name for field in msgspec.structs.fields(shape) if field.required])


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the hint alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    for member in _members(hint):
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            return member
    return None


def _row_in(hint: Any) -> type[msgspec.Struct] | None:
    """The struct of which the hint allows a list."""
    rows = (get_args(member)[0] for member in _members(hint) if get_origin(member) is tuple)
    return next((shape for row in rows if (shape := _struct_in(row)) is not None), None)


def _choices(hint: Any) -> list[str]:
    """The words a closed list allows; empty when the hint is no closed list."""
    words: list[str] = []
    for member in _members(hint):
        if get_origin(member) is Literal:
            words += [str(word) for word in get_args(member)]
        elif member is bool and words:
            words += ["true", "false"]
    return words


def _blank(hint: Any) -> object:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return _BLANKS.get(get_origin(bare) or bare)
