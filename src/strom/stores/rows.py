"""Call records as rows of a table: one column per field of `CallRecord`, nested fields as JSON.

The columns follow the struct, so a new field of the record is a new column and nothing else changes. Nullable, all of them
but the key: a row written before a column existed reads as the field's default.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec

from strom.core.record import CallRecord

_TYPES = get_type_hints(CallRecord)
_SQL_TYPES = {int: "INTEGER", float: "REAL", bool: "INTEGER"}


def _bare(hint: Any) -> Any:
    """The type without `| None`."""
    alternatives = [one for one in get_args(hint) if one is not type(None)]
    return alternatives[0] if type(None) in get_args(hint) and len(alternatives) == 1 else hint


def _is_nested(hint: Any) -> bool:
    return getattr(hint, "__origin__", hint) in (list, dict) or (
        isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    )


COLUMNS: tuple[str, ...] = CallRecord.__struct_fields__
_NESTED: tuple[tuple[int, msgspec.json.Decoder[Any]], ...] = tuple(
    (at, msgspec.json.Decoder(_TYPES[name])) for at, name in enumerate(COLUMNS) if _is_nested(_bare(_TYPES[name]))
)
_FLAGS = tuple(at for at, name in enumerate(COLUMNS) if _TYPES[name] is bool)
_ENCODE = msgspec.json.encode


def column_sql(name: str) -> str:
    """The declaration of a column."""
    if name == "trace_id":
        return "trace_id TEXT PRIMARY KEY NOT NULL"
    return f"{name} {_SQL_TYPES.get(_bare(_TYPES[name]), 'TEXT')}"


def to_row(record: CallRecord) -> list[Any]:
    """Values in the order of COLUMNS."""
    row = list(msgspec.structs.astuple(record))
    for at, _ in _NESTED:
        value = row[at]
        if value is not None:
            row[at] = _ENCODE(value).decode() if value else None
    return row


def from_row(row: tuple[Any, ...]) -> CallRecord:
    """Raises msgspec.ValidationError or DecodeError when the row is none of ours."""
    values = list(row)
    for at, decoder in _NESTED:
        if values[at] is not None:
            values[at] = decoder.decode(values[at])
    for at in _FLAGS:
        if values[at] is not None:
            values[at] = bool(values[at])
    return CallRecord(**{name: value for name, value in zip(COLUMNS, values, strict=True) if value is not None})
