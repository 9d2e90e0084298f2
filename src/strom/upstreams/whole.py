"""Receives a whole small answer into a future: what every look at an upstream needs, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from strom.core.errors import ProviderError, StromError
from strom.transport.types import Headers, TransportFailure


class WholeAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


class WholeReceiver:
    """A ResponseReceiver. `too_long` words the error of an answer over `max_bytes`, `explain` that of a failed exchange."""

    def __init__(
        self,
        done: asyncio.Future[WholeAnswer],
        explain: Callable[[TransportFailure], StromError],
        *,
        max_bytes: int,
        too_long: str,
    ) -> None:
        self._done = done
        self._explain = explain
        self._max_bytes = max_bytes
        self._too_long = too_long
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    def on_response(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._max_bytes:
            self._parts.append(data)

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        if self._done.done():
            return
        if self._size > self._max_bytes:
            self._done.set_exception(ProviderError(self._too_long))
        else:
            self._done.set_result(WholeAnswer(self._status, self._headers, b"".join(self._parts)))

    def on_failure(self, failure: TransportFailure) -> None:
        if not self._done.done():
            self._done.set_exception(self._explain(failure))
