"""`strom traces export`: records as JSON lines, CSV or Parquet, written as they are read, in bounded memory.

CSV and Parquet have one column per field, nested fields as `usage.input_tokens`, lists as JSON. A CSV cell that begins as a
formula would is preceded by an apostrophe: names in records come from clients, and spreadsheets run formulas.
Source: RFC 4180; OWASP, "CSV Injection".
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, get_args, get_type_hints

import msgspec

from strom.core.errors import ConfigError, StromError
from strom.core.record import CallRecord

Row = dict[str, Any]
_TIMES = ("started_at", "ended_at")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Sink(Protocol):
    def write(self, traces: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, traces: Sequence[Row]) -> None:
        for trace in traces:
            self._file.write(msgspec.json.encode(trace) + b"\n")

    def close(self) -> None:
        """Nothing is held back."""


class Csv:
    def __init__(self, file: BinaryIO) -> None:
        self._text = io.TextIOWrapper(file, "utf-8", newline="")
        self._writer = csv.writer(self._text)
        self._writer.writerow(COLUMNS)

    def write(self, traces: Sequence[Row]) -> None:
        self._writer.writerows([_cell(value) for value in flat(trace).values()] for trace in traces)

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


class Parquet:
    """One row group per batch. Times are instants of UTC."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise ConfigError("for Parquet install the extra: pip install 'strom[parquet]'") from None
        kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
        instant = pa.timestamp("ms", tz="UTC")
        fields = [(name, instant if name in _TIMES else kinds[kind]) for name, kind in COLUMNS.items()]
        self._arrow, self._schema = pa, pa.schema(fields)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, traces: Sequence[Row]) -> None:
        rows = [flat(trace) for trace in traces]
        for row in rows:
            for name in _TIMES:
                row[name] = _milliseconds(row[name])
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


SINKS: dict[str, type[JsonLines | Csv | Parquet]] = {"jsonl": JsonLines, "csv": Csv, "parquet": Parquet}


@contextmanager
def open_sink(kind: str, path: str) -> Iterator[Sink]:
    """`path` "-": standard output. A file appears whole or not at all. Raises StromError."""
    if path == "-":
        sink = SINKS[kind](sys.stdout.buffer)
        yield sink
        sink.close()
        sys.stdout.buffer.flush()
        return
    place, unfinished = Path(path), Path(f"{path}.unfinished")
    try:
        with unfinished.open("wb") as file:
            sink = SINKS[kind](file)
            yield sink
            sink.close()
        unfinished.replace(place)
    except OSError as error:
        raise StromError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def flat(trace: Row) -> Row:
    """In the columns' order; a list as JSON, what is absent as None."""
    return {name: _leaf(trace, name) for name in COLUMNS}


def _leaf(trace: Row, name: str) -> Any:
    value: Any = trace
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list | dict) else value


def _columns(shape: type[msgspec.Struct], before: str = "") -> Iterator[tuple[str, type]]:
    """Every leaf of a record and its type: one of int, float, bool, str."""
    for name, hint in get_type_hints(shape).items():
        members = [one for one in get_args(hint) if one is not type(None)] if type(None) in get_args(hint) else [hint]
        kind = members[0]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _columns(kind, f"{before}{name}.")
        else:
            yield f"{before}{name}", kind if kind in (int, float, bool) else str


COLUMNS: dict[str, type] = {name: str if name in _TIMES else kind for name, kind in _columns(CallRecord)}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _milliseconds(text: str | None) -> int | None:
    from strom.stores.query import parse_instant

    return None if text is None else round(parse_instant(text, "time") * 1000)
