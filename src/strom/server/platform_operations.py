"""The operations of `/platform/v1`, as one table: what is routed, what is validated, and what the OpenAPI document says.

Who answers an operation is registered under its name (platform.py). A path is written as in OpenAPI, with `{names}` for single
segments; where a fixed path and one with a name both fit, the fixed one is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from strom.server.platform_queries import ExplainQuery, NoQuery, PageQuery, SumQuery, TraceQuery
from strom.server.platform_types import (
    EndpointPage,
    Explanation,
    KeyPageBody,
    KeyRow,
    LimitPageBody,
    MadeKey,
    NewKey,
    NoBody,
    RotateKey,
    TracePage,
    TraceRow,
)
from strom.stores.usage import UsagePage

ROOT = "/platform/v1"


class Operation(NamedTuple):
    """`body`: what a POST takes; where all its members may be left out, so may the body. `answer` None: any JSON object."""

    name: str
    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | None
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses that not every operation has."""


_KEY = f"{ROOT}/keys/{{key}}"
OPERATIONS: tuple[Operation, ...] = (
    Operation("list_traces", "GET", f"{ROOT}/traces", "List the records of calls, the newest first.", TracePage, TraceQuery),
    Operation("show_trace", "GET", f"{ROOT}/traces/{{trace_id}}", "Show the record of one call.", TraceRow, errors=(404,)),
    Operation(
        "show_usage", "GET", f"{ROOT}/usage", "Sum up tokens and cost of calls, by groups.", UsagePage, SumQuery
    ),
    Operation("list_limits", "GET", f"{ROOT}/limits", "List limits and what is left of them.", LimitPageBody, PageQuery),
    Operation("list_endpoints", "GET", f"{ROOT}/endpoints", "List endpoints and how they fare.", EndpointPage, PageQuery),
    Operation(
        "explain_policy", "GET", f"{ROOT}/policies/explain",
        "Say which endpoints of a model qualify for a key and a policy, and why the others do not.",
        Explanation, ExplainQuery, errors=(404,),
    ),
    Operation("list_keys", "GET", f"{ROOT}/keys", "List managed keys, the newest first.", KeyPageBody, PageQuery),
    Operation(
        "create_key", "POST", f"{ROOT}/keys", "Make a key. Its secret is in this answer and nowhere else.",
        MadeKey, body=NewKey, status=201, errors=(409,),
    ),
    Operation("show_key", "GET", _KEY, "Show a managed key.", KeyRow, errors=(404,)),
    Operation("revoke_key", "DELETE", _KEY, "Revoke a key for good; it stays in the list.", KeyRow, errors=(404,)),
    Operation(
        "rotate_key", "POST", f"{_KEY}/rotate", "Give a key a new secret; the old one ends after the overlap.",
        MadeKey, body=RotateKey, status=201, errors=(404, 409),
    ),
    Operation("disable_key", "POST", f"{_KEY}/disable", "Switch a key off.", KeyRow, body=NoBody, errors=(404,)),
    Operation("enable_key", "POST", f"{_KEY}/enable", "Switch a key on again.", KeyRow, body=NoBody, errors=(404,)),
    Operation("show_openapi", "GET", f"{ROOT}/openapi.json", "This document.", None),
)  # fmt: skip


class Match(NamedTuple):
    """The operations of a path, by method, and what its names stand for here."""

    operations: dict[str, Operation]
    names: dict[str, str]

    @property
    def allowed(self) -> str:
        methods = [method for method in ("GET", "POST", "DELETE") if method in self.operations]
        return ", ".join(
            [*(["GET", "HEAD"] if "GET" in methods else []), *(m for m in methods if m != "GET"), "OPTIONS"]
        )

    def operation(self, method: str) -> Operation | None:
        return self.operations.get("GET" if method == "HEAD" else method)


def match(path: str) -> Match | None:
    """None: there is nothing at this path."""
    return next(_matches(path.split("/")), None)


def _matches(segments: list[str]) -> Iterator[Match]:
    for template, operations in _PATHS:
        names: dict[str, str] = {}
        if len(template) == len(segments) and all(_fits(*pair, names) for pair in zip(template, segments, strict=True)):
            yield Match(operations, names)


def _fits(pattern: str, segment: str, names: dict[str, str]) -> bool:
    if not pattern.startswith("{"):
        return pattern == segment
    names[pattern.strip("{}")] = unquote(segment)
    return bool(segment)


def _paths() -> list[tuple[list[str], dict[str, Operation]]]:
    found: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        found.setdefault(operation.path, {})[operation.method] = operation
    return [(path.split("/"), found[path]) for path in sorted(found, key=lambda path: ("{" in path, path))]


_PATHS = _paths()


class Asked(NamedTuple):
    """A request that fits its operation. `given`: the query parameters as text; `body` None: the operation takes none."""

    names: dict[str, str]
    query: Any
    given: dict[str, str]
    body: Any
