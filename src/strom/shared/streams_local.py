"""Streams of the other processes of one gateway on one machine: each listens on a socket of its own in a folder they share.

    asker  ──── one line of JSON: PeerRequest ────▶  home of the stream
    asker  ◀─── messages: 4 bytes length, content ──  home

The first message is a `PeerHead`. Those after it are pieces of the stream; one without content is its end, and a connection
that ends before that is a stream that was lost. The content of streams so never leaves the memory of the processes. The folder
is its owner's alone (mode 0700). What the home says is final; a home without a socket is another machine's, or dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Literal

import msgspec

from strom.shared.streams import StreamInfo, StreamLost, beyond_error, home_of, not_found

LOG = logging.getLogger("strom.streams")
ANSWER_S = 5.0
MOST_WAITING = 1024
"""Connections that wait to be accepted."""
MAX_REQUEST_BYTES = 4096
_END = bytes(4)


class PeerRequest(msgspec.Struct, frozen=True):
    task: Literal["read", "cancel"]
    id: str
    owner: str
    after: int = 0


class PeerHead(msgspec.Struct, frozen=True):
    """`info` None: not there. `count`: so many frames it has, fewer than the asker says it has seen."""

    info: StreamInfo | None = None
    count: int | None = None


class PeerChannel(asyncio.Protocol):
    """A connection from an asker. From `begin` on it is an outlet for a reader of the stream."""

    def __init__(self, serve: Callable[[PeerRequest, PeerChannel], None]) -> None:
        self._serve = serve
        self._asked = b""
        self._transport: asyncio.Transport | None = None
        self.closed = False
        self.paused = False
        self.on_disconnect: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None

    def head(self, head: PeerHead) -> None:
        """The answer; `begin` or `finish` follows."""
        self._send(msgspec.json.encode(head))

    # -- Outlet --

    def start(self, status: int, headers: list[tuple[bytes, bytes]], *, length: int | None = None) -> None:
        """The asker words the head itself."""

    def write(self, data: bytes) -> None:
        if data:
            self._send(data)

    def finish(self, data: bytes = b"") -> None:
        self.write(data)
        if self._transport is not None and not self.closed:
            self._transport.write(_END)
            self._close()

    def abort(self) -> None:
        """What was written still goes out."""
        self._close()

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream socket it is one that writes

    def data_received(self, data: bytes) -> None:
        if self._asked.endswith(b"\n"):
            return
        self._asked += data
        if self._asked.endswith(b"\n"):
            try:
                request = msgspec.json.decode(self._asked, type=PeerRequest)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._close()
            else:
                self._serve(request, self)
        elif len(self._asked) > MAX_REQUEST_BYTES:
            self._close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        hook = self.on_disconnect
        self.on_disconnect = self.on_pause = self.on_resume = None
        if hook is not None:
            hook()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.on_resume is not None:
            self.on_resume()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(len(data).to_bytes(4, "big") + data)

    def _close(self) -> None:
        self.closed = True
        self.on_disconnect = self.on_pause = self.on_resume = None
        if self._transport is not None:
            self._transport.close()


class Peers:
    """`serve` answers the others. An `Elsewhere`."""

    def __init__(self, folder: Path, home: str, serve: Callable[[PeerRequest, PeerChannel], None]) -> None:
        self._folder = folder
        self._home = home
        self._serve = serve
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        path = self._path(self._home)
        try:
            self._server = await loop.create_unix_server(
                lambda: PeerChannel(self._serve), str(path), backlog=MOST_WAITING
            )
            path.chmod(0o600)
        except OSError as error:  # a path that is too long for a socket, say
            LOG.warning("other workers cannot reach the resumable streams of this one: %s", error)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path(self._home).unlink(missing_ok=True)

    async def read(self, stream_id: str, owner: str, after: int) -> PeerStream | None:
        connected = await self._ask(PeerRequest("read", stream_id, owner, after))
        if connected is None:
            return None
        head, stream = connected
        if head.info is not None and head.count is None:
            stream.info = head.info
            return stream
        stream.close()
        if head.count is not None:
            raise beyond_error(after, head.count)
        raise not_found(stream_id)

    async def cancel(self, stream_id: str, owner: str) -> bool:
        connected = await self._ask(PeerRequest("cancel", stream_id, owner))
        if connected is None:
            return False
        head, stream = connected
        stream.close()
        if head.info is None:
            raise not_found(stream_id)
        return True

    async def _ask(self, request: PeerRequest) -> tuple[PeerHead, PeerStream] | None:
        path = self._path(home_of(request.id) or "")
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(path))
                stream = PeerStream(reader, writer)
                try:
                    writer.write(msgspec.json.encode(request) + b"\n")
                    return msgspec.json.decode(await stream.message(), type=PeerHead), stream
                except BaseException:
                    stream.close()
                    raise
        except (FileNotFoundError, ConnectionRefusedError):
            return None  # no such process, any more
        except (OSError, StreamLost):  # too late, too many at once, or it ends just now: worth another try
            raise StreamLost("The process that runs this stream does not answer.") from None

    def _path(self, home: str) -> Path:
        return self._folder / f"{home}.sock"


class PeerStream:
    """A RemoteStream."""

    info: StreamInfo

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while piece := await self.message():
                yield piece
        finally:
            self.close()

    async def message(self) -> bytes:
        """Raises StreamLost."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise StreamLost("The process that ran this stream is gone.") from None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
