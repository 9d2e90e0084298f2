"""A stage for the checks: an endpoint without sockets, on a clock that jumps to whatever is due next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

import msgspec

from strom.transport.types import Headers, Origin, OutgoingRequest, ResponseReceiver, TransportFailure, UpstreamExchange

T = TypeVar("T")
Ending = Literal["framed", "closed", "cut", "hang", "none", "refused"]


class Reply(msgspec.Struct, frozen=True):
    """`frames`: each leaves `gap_s` after the one before, the first `wait_s` after the request."""

    status: int
    headers: Headers
    frames: tuple[bytes, ...]
    end: Ending = "framed"
    wait_s: float = 0.05
    gap_s: float = 0.02


Handler = Callable[[OutgoingRequest], Reply]


class _Exchange:
    def __init__(self, client: StageClient) -> None:
        self.timers: list[asyncio.TimerHandle] = []
        self._client = client

    def abort(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self._client.aborted += 1

    def express(self, take: object) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class StageClient:
    """An UpstreamClient that plays what `handler` says. `asked`: every request, in order."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.asked: list[OutgoingRequest] = []
        self.aborted = 0

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        self.asked.append(request)
        reply, exchange, loop = self._handler(request), _Exchange(self), asyncio.get_running_loop()
        at_s = loop.time() + reply.wait_s
        if reply.end not in ("none", "refused"):
            exchange.timers.append(loop.call_at(at_s, receiver.on_response, reply.status, reply.headers))
        for frame in reply.frames:
            exchange.timers.append(loop.call_at(at_s, receiver.on_body, frame))
            at_s += reply.gap_s
        match reply.end:
            case "framed" | "closed":
                exchange.timers.append(
                    loop.call_at(at_s, lambda: receiver.on_end(delimited_by_close=reply.end == "closed"))
                )
            case "cut" | "none" | "refused":
                failure = TransportFailure("cut", "connection closed", sent=reply.end != "refused")
                exchange.timers.append(loop.call_at(at_s, receiver.on_failure, failure))
            case "hang":
                pass
        return exchange

    def close(self) -> None: ...

    def stats(self) -> dict[str, Any]:
        return {}


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing that only time brings."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now += timeout
            timeout = 0
        return super().select(timeout)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def play(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(coroutine)
