"""One recorded exchange: a request, and what came back when.

`pieces` are the reads of the response's body in their order, HTTP framing and content coding removed; a piece is what was
forwarded in one write. Times are milliseconds since the request was sent. Nothing here does I/O.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.core.errors import StromError

Fields = tuple[tuple[str, str], ...]
"""Header fields in their order, names in lower case."""

End = Literal["complete", "cut", "reset", "client_left", "unreachable"]
"""How the response ended: by its own framing; before it, by a close or a reset; because the client left; or it never began."""


class BadRecording(StromError):
    """A file or folder that is no recording. The message names it and says what is wrong."""

    code = "bad_recording"


class Piece(msgspec.Struct, frozen=True):
    t_ms: float
    data: bytes


class Head(msgspec.Struct, frozen=True):
    """The head of a response."""

    t_ms: float
    status: int
    headers: Fields = ()

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


class Ending(msgspec.Struct, frozen=True):
    """`detail`: what the transport said, None when there is nothing to say."""

    t_ms: float
    kind: End
    detail: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """The request. `target` is path and query as the client sent them, secrets masked."""

    method: str
    target: str
    headers: Fields = ()
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Recording(msgspec.Struct, frozen=True):
    """`head` None: no response began. `source`: where it was read from, for messages."""

    asked: Asked
    head: Head | None
    pieces: tuple[Piece, ...]
    ending: Ending
    recorded_at: str | None = None
    """RFC 3339, None when unknown."""
    source: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)
