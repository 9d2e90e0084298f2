"""Fails when a function, a file or a list of parameters is longer than agreed.  check_sizes.py FOLDER…

Limits: 60 lines a function (from `def` to its last line), 600 lines a file, 5 parameters (without self and cls; keyword-only
ones count, *args and **kwargs do not). Exceptions stand in size_exceptions.toml beside this file, each with a reason and its
own limit; one that is no longer needed is an error too.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMITS = {"file_lines": 600, "function_lines": 60, "parameters": 5}
EXCEPTIONS = Path(__file__).with_name("size_exceptions.toml")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Measure:
    """One size: of what (path, or path::Class.function), which limit it falls under, how large, in which line."""

    place: str
    limit: str
    size: int
    line: int


def main(folders: list[str]) -> int:
    exceptions = load_exceptions()
    measures = [measure for path in files(folders) for measure in measure_file(path)]
    complaints = [complaint for measure in measures if (complaint := judge(measure, exceptions))]
    complaints += stale(exceptions, measures, folders)
    for complaint in complaints:
        print(complaint)
    counted = len({measure.place for measure in measures if measure.limit == "file_lines"})
    print(f"sizes: {counted} files, {len(complaints)} complaints")
    return 1 if complaints else 0


def load_exceptions() -> dict[tuple[str, str], int]:
    """(place, limit) → the larger size that is allowed there."""
    entries = tomllib.loads(EXCEPTIONS.read_text("utf-8")).get("exception", []) if EXCEPTIONS.exists() else []
    for entry in entries:
        if (
            entry.keys() != {"place", "limit", "allowed", "reason"}
            or entry["limit"] not in LIMITS
            or not entry["reason"]
        ):
            raise SystemExit(f"{EXCEPTIONS.name}: an exception has place, limit, allowed and reason: {entry}")
    return {(entry["place"], entry["limit"]): entry["allowed"] for entry in entries}


def files(folders: list[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(Path(folder).rglob("*.py"))


def measure_file(path: Path) -> Iterator[Measure]:
    text = path.read_text("utf-8")
    yield Measure(path.as_posix(), "file_lines", len(text.splitlines()), 1)
    for name, function, is_method in functions(ast.parse(text), ""):
        place = f"{path.as_posix()}::{name}"
        last = function.end_lineno or function.lineno
        yield Measure(place, "function_lines", last - function.lineno + 1, function.lineno)
        yield Measure(place, "parameters", count_parameters(function, is_method=is_method), function.lineno)


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function, bool]]:
    """Every function below the node: dotted name, node, whether it stands in a class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child, isinstance(node, ast.ClassDef)
        inner = f"{prefix}{child.name}." if isinstance(child, Function | ast.ClassDef) else prefix
        yield from functions(child, inner)


def count_parameters(function: Function, *, is_method: bool) -> int:
    given = function.args
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)
    own = 1 if is_method and not static else 0
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - own


def judge(measure: Measure, exceptions: dict[tuple[str, str], int]) -> str | None:
    allowed = exceptions.get((measure.place, measure.limit), LIMITS[measure.limit])
    if measure.size <= allowed:
        return None
    path, _, name = measure.place.partition("::")
    return f"{path}:{measure.line}: {name or 'file'} has {measure.size} {measure.limit}, allowed are {allowed}"


def stale(exceptions: dict[tuple[str, str], int], measures: list[Measure], folders: list[str]) -> list[str]:
    """Exceptions below these folders that nothing needs."""
    sizes = {(measure.place, measure.limit): measure.size for measure in measures}
    return [
        f"{EXCEPTIONS.name}: {place} ({limit}) needs no exception any more"
        for place, limit in exceptions
        if any(place.startswith(f"{folder.rstrip('/')}/") for folder in folders)
        and sizes.get((place, limit), 0) <= LIMITS[limit]
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src", "tests", "tools"]))
