"""Streams that outlive a connection: their ids, and where a process looks for those that another one runs.

An id tells the protocol of its stream and the process that runs it, its home; 128 random bits of it cannot be guessed. Whoever
asks for a stream names its owner as well: to any other it is not there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator
from typing import Protocol
from urllib.parse import unquote

import msgspec

from strom.core.errors import BadRequest, GatewayError, NotFound

_LETTERS = {"openai-chat": "c", "openai-responses": "r", "anthropic": "a", "ollama": "o"}
_PROTOCOLS = {letter: protocol for protocol, letter in _LETTERS.items()}
_ID = re.compile(r"strm_([crao])([0-9a-f]{8})_[A-Za-z0-9_-]{22}")


class StreamInfo(msgspec.Struct, frozen=True):
    """`owner`: the name of the key that made it, "" for nobody."""

    id: str
    owner: str
    protocol: str
    content_type: str
    trace_id: str


def new_home() -> str:
    """The name of a process."""
    return secrets.token_hex(4)


def new_id(protocol: str, home: str) -> str:
    return f"strm_{_LETTERS.get(protocol, 'c')}{home}_{secrets.token_urlsafe(16)}"


def home_of(stream_id: str) -> str | None:
    """None: that is no id of a stream."""
    found = _ID.fullmatch(stream_id)
    return found[2] if found else None


def protocol_of(stream_id: str) -> str | None:
    """The protocol of its stream, also of one that is gone. None: that is no id of a stream."""
    found = _ID.fullmatch(stream_id)
    return _PROTOCOLS[found[1]] if found else None


class StreamLost(GatewayError):
    """The process that ran a stream is gone, or not to be reached any more."""

    status = 502
    code = "stream_lost"
    retryable = True


def beyond_error(after: int, count: int) -> BadRequest:
    return BadRequest(f"Last-Event-ID: this stream has {count} frames so far, not {after}.", param="Last-Event-ID")


def not_found(stream_id: str) -> NotFound:
    return NotFound(
        f"There is no stream {unquote(stream_id)[:100]!r} here: it never was, is forgotten, or was lost with its process.",
        code="stream_not_found",
    )


class RemoteStream(Protocol):
    """A stream that another process runs or ran, from some frame on."""

    info: StreamInfo

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """Whole frames as they come, up to the last; b"" after a silence. Raises StreamLost. Closing it leaves the stream."""
        ...


class Elsewhere(Protocol):
    """Other processes, by some way to reach them."""

    async def read(self, stream_id: str, owner: str, after: int) -> RemoteStream | None:
        """Everything after frame number `after`. None: it knows nothing of it. Raises NotFound when it knows that it is gone
        or not this owner's, BadRequest, StreamLost."""
        ...

    async def cancel(self, stream_id: str, owner: str) -> bool:
        """End it and forget it. False: it knows nothing of it. Raises NotFound, StreamLost."""
        ...
