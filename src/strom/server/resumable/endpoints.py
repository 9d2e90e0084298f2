"""The paths: /v1/streams/{id}, and the request header that asks for such a stream.

x-strom-resumable: 1           on a model call that streams: its frames are numbered and kept, `x-strom-stream-id` names it
GET /v1/streams/{id}           every frame after `Last-Event-ID` (none: all), as they come, up to the last
DELETE /v1/streams/{id}        ends it and forgets it

A stream belongs to the key it was made with; to any other it is not there. One that another process runs is asked for there:
the process that an id names, if it can be reached, else the copy that replicas share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from strom.core.errors import StromError
from strom.gateway.gateway import Gateway
from strom.gateway.refusals import not_allowed
from strom.gateway.responses import id_headers, stream_headers
from strom.protocols.codec import Codec
from strom.protocols.openai_responses.stored import body_wish
from strom.server.following import Reader, last_event_id
from strom.server.resumable.exchange import ResumableExchange, stream_fields
from strom.server.resumable.streams import Streams
from strom.shared.streams import (
    Elsewhere,
    RemoteStream,
    StreamInfo,
    StreamLost,
    beyond_error,
    home_of,
    not_found,
    protocol_of,
)
from strom.transport.types import Exchange, Headers

BELOW = "/v1/streams/"
HEADER = b"x-strom-resumable"
_YES = (b"1", b"true")


class Closing(Protocol):
    """What stands behind streams of other processes."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class Resumption:
    """`peers`: processes that the home in an id leads to; what they say of it is final. `replicas`: the shared copy."""

    def __init__(
        self,
        gateway: Gateway,
        streams: Streams,
        peers: Elsewhere | None = None,
        replicas: Elsewhere | None = None,
        behind: Sequence[Closing] = (),
    ) -> None:
        self._gateway = gateway
        self.streams = streams
        self._peers = peers
        self._replicas = replicas
        self._behind = behind

    async def open(self) -> None:
        """Before requests come."""
        for each in self._behind:
            await each.open()

    async def close(self) -> None:
        """After the last call."""
        self.streams.close()
        for each in self._behind:
            await each.close()

    def wrap(self, exchange: Exchange) -> Exchange:
        """The exchange for a model call: its client's own, unless it asks for more."""
        value = exchange.head.header(HEADER)
        if value is None or value.strip().lower() not in _YES or exchange.refusal is not None:
            return exchange
        return exchange if _runs_in_background(exchange) else ResumableExchange(exchange, self.streams)

    def codec_for(self, path: str) -> Codec | None:
        """The protocol that a client of this path speaks. None: it is not told."""
        protocol = protocol_of(path.removeprefix(BELOW))
        return self._gateway.codecs.get(protocol) if protocol is not None else None

    async def below(self, exchange: Exchange) -> None:
        """Any method, any path below /v1/streams/."""
        method, stream_id = exchange.head.method, exchange.head.path.removeprefix(BELOW)
        if method not in ("GET", "DELETE"):
            raise not_allowed(exchange.head.path[:200], "GET and DELETE", "GET, DELETE")
        key = self._gateway.identify(exchange)
        owner = key.name if key is not None else ""
        if home_of(stream_id) is None:
            raise not_found(stream_id)
        if method == "GET":
            await self._read(exchange, stream_id, owner)
        else:
            await self._cancel(exchange, stream_id, owner)

    async def _read(self, exchange: Exchange, stream_id: str, owner: str) -> None:
        after = last_event_id(exchange)
        stream = self.streams.find(stream_id, owner)
        if stream is not None:
            if after > len(stream.frames):
                raise beyond_error(after, len(stream.frames))
            headers = self._headers(stream.info, shared=stream.mirror is not None)
            Reader(exchange, stream, after).attach(headers)
            return
        for place in self._places(stream_id):
            remote = await place.read(stream_id, owner, after)
            if remote is not None:
                headers = self._headers(remote.info, shared=place is self._replicas)
                await _Forwarded(exchange, remote).run(headers)
                return
        raise not_found(stream_id)

    async def _cancel(self, exchange: Exchange, stream_id: str, owner: str) -> None:
        stream = self.streams.find(stream_id, owner)
        if stream is not None:
            self.streams.cancel(stream)
        elif not await self._cancelled_elsewhere(stream_id, owner):
            raise not_found(stream_id)
        trace_id = self._gateway.services.new_trace_id()
        exchange.respond(204, id_headers(protocol_of(stream_id) or "", trace_id), b"")

    async def _cancelled_elsewhere(self, stream_id: str, owner: str) -> bool:
        for place in self._places(stream_id):
            if await place.cancel(stream_id, owner):
                return True
        return False

    def _places(self, stream_id: str) -> list[Elsewhere]:
        """Where a stream may be that this process does not have."""
        if home_of(stream_id) == self.streams.home:
            return []
        return [place for place in (self._peers, self._replicas) if place is not None]

    def _headers(self, info: StreamInfo, *, shared: bool) -> Headers:
        codec = self._gateway.codecs[info.protocol]
        return stream_headers(codec, info.trace_id) + stream_fields(info.id, shared=shared)


class _Forwarded:
    """A client here of a stream that is elsewhere."""

    def __init__(self, exchange: Exchange, remote: RemoteStream) -> None:
        self._exchange = exchange
        self._remote = remote
        self._ready = asyncio.Event()

    async def run(self, headers: Headers) -> None:
        exchange = self._exchange
        exchange.on_resume = self._ready.set
        exchange.start(200, headers)
        exchange.write(b"")
        async with contextlib.aclosing(self._remote.chunks()) as chunks:
            try:
                async for chunk in chunks:
                    exchange.write(chunk or self._sign_of_life())
                    await self._taken()
            except StreamLost:
                exchange.abort()  # cut short, it is not taken for a whole one
                return
        exchange.finish()

    def _sign_of_life(self) -> bytes:
        """Streams of lines bring their own."""
        return b"" if "ndjson" in self._remote.info.content_type else b": keep-alive\n\n"

    async def _taken(self) -> None:
        """Wait until the client has read what was written."""
        while self._exchange.paused and not self._exchange.closed:
            self._ready.clear()
            await self._ready.wait()


def _runs_in_background(exchange: Exchange) -> bool:
    """Such a response outlives its client by itself, with numbers and a name of its own."""
    try:
        return exchange.head.path == "/v1/responses" and body_wish(exchange.body).background
    except StromError:
        return False  # the call will be refused, and say why
