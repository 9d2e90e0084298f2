"""The exchange of a call whose client may come back.

Until the head of a stream it is the client's own: a client that leaves before does so for good, since it knows no id to come
back with. From the head on the call writes into a kept stream, and the client is its first reader. Whole answers pass.
"""

from __future__ import annotations

from strom.gateway.attended import Attended
from strom.gateway.opening import Opening
from strom.gateway.services import Running
from strom.server.exchanges import DetachedExchange, Forwarding
from strom.server.following import Reader
from strom.server.resumable.streams import KeptStream, Streams
from strom.transport.types import Exchange, Headers

STREAM_ID = b"x-strom-stream-id"
SCOPE = b"x-strom-resume-scope"


def stream_fields(stream_id: str, *, shared: bool) -> Headers:
    """`gateway`: any worker of this gateway knows it; `replicas`: every replica that shares its Redis."""
    return [(STREAM_ID, stream_id.encode()), (SCOPE, b"replicas" if shared else b"gateway")]


class ResumableExchange(Forwarding, Attended):
    __slots__ = ("_begun", "_streams")

    def __init__(self, inner: Exchange, streams: Streams) -> None:
        super().__init__(inner)
        self._streams = streams
        self._begun: tuple[Running, Opening] | None = None

    def attend(self, call: Running, opening: Opening) -> None:
        self._begun = (call, opening)

    def write(self, data: bytes) -> None:
        self._inner.write(data)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self._begun = None
        super().respond(status, headers, body)

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        begun, self._begun = self._begun, None
        stream: KeptStream | None = None
        if begun is not None and status == 200 and length is None and not self.closed:
            content_type = next((value for name, value in headers if name == b"content-type"), b"")
            stream = self._streams.begin(*begun, content_type)
        if stream is None:
            super().start(status, headers, length=length)
            return
        client = self._inner
        client.body = b""
        detached = DetachedExchange(self.head, b"", stream)
        client.start(status, headers + stream_fields(stream.info.id, shared=stream.mirror is not None))
        self._inner = detached
        Reader(client, stream, 0).join()
