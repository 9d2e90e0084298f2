"""Exchanges that stand between a call and its client, for whoever keeps answers.

Forwarding         passes everything on to another exchange; its users override what they want to know of
DetachedExchange   an exchange without a client: a call that runs on its own writes into a `Sink`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from strom.transport.types import Exchange, Headers, Refusal, RequestHead

Hook = Callable[[], None] | None


class Forwarding:
    """All of an Exchange but `write`, which a call takes once and keeps: each kind says where its pieces go.

    What the call lets go of, the request's head and body among it, the other exchange lets go of too.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Exchange) -> None:
        self._inner = inner

    @property
    def head(self) -> RequestHead:
        return self._inner.head

    @head.setter
    def head(self, head: RequestHead) -> None:
        self._inner.head = head

    @property
    def body(self) -> bytes:
        return self._inner.body

    @body.setter
    def body(self, body: bytes) -> None:
        self._inner.body = body

    @property
    def refusal(self) -> Refusal | None:
        return self._inner.refusal

    @refusal.setter
    def refusal(self, refusal: Refusal | None) -> None:
        self._inner.refusal = refusal

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        self._inner.start(status, headers, length=length)

    def finish(self, data: bytes = b"") -> None:
        self._inner.finish(data)

    def abort(self) -> None:
        self._inner.abort()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self._inner.respond(status, headers, body)

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def paused(self) -> bool:
        return self._inner.paused

    @property
    def bytes_out(self) -> int:
        return self._inner.bytes_out

    @property
    def on_disconnect(self) -> Hook:
        return self._inner.on_disconnect

    @on_disconnect.setter
    def on_disconnect(self, hook: Hook) -> None:
        self._inner.on_disconnect = hook

    @property
    def on_pause(self) -> Hook:
        return self._inner.on_pause

    @on_pause.setter
    def on_pause(self, hook: Hook) -> None:
        self._inner.on_pause = hook

    @property
    def on_resume(self) -> Hook:
        return self._inner.on_resume

    @on_resume.setter
    def on_resume(self, hook: Hook) -> None:
        self._inner.on_resume = hook


class Sink(Protocol):
    """What a detached call writes into: pieces of its stream and its end, or a whole answer instead."""

    def take(self, data: bytes) -> None: ...

    def end(self, data: bytes) -> None:
        """The last piece, maybe empty. The call has told its end in it, so that nothing can be said after it: it is taken
        whatever bounds it breaks, and the call is not stopped from here."""
        ...

    def cut(self) -> None:
        """Instead of `end`: the call failed so that it cannot say how."""
        ...

    def answer(self, status: int, headers: Headers, body: bytes) -> None: ...


class DetachedExchange:
    """`leave` plays a client that goes away: the call ends at once, and nothing reaches the sink anymore."""

    refusal: Refusal | None = None
    paused = False

    def __init__(self, head: RequestHead, body: bytes, sink: Sink) -> None:
        self.head = head
        self.body = body
        self.on_disconnect: Hook = None
        self.on_pause: Hook = None
        self.on_resume: Hook = None
        self.closed = False
        self.bytes_out = 0
        self._sink: Sink | None = sink
        """None once the call is over: no cycle keeps a long stream in memory."""

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        pass

    def write(self, data: bytes) -> None:
        if self._sink is not None and data:
            self.bytes_out += len(data)
            self._sink.take(data)

    def finish(self, data: bytes = b"") -> None:
        sink = self._close()
        if sink is not None:
            self.bytes_out += len(data)
            sink.end(data)

    def abort(self) -> None:
        sink = self._close()
        if sink is not None:
            sink.cut()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        sink = self._close()
        if sink is not None:
            self.bytes_out += len(body)
            sink.answer(status, headers, body)

    def leave(self) -> None:
        hook = self.on_disconnect
        if self._close() is not None and hook is not None:
            hook()

    def _close(self) -> Sink | None:
        """The sink, the first time."""
        sink, self._sink = self._sink, None
        self.closed = True
        self.on_disconnect = self.on_pause = self.on_resume = None
        return sink
