"""Images and documents given by address, for backends that take only their data.

Off unless `[server] fetch_media = true`: the gateway then reads from hosts that a client names. All media of one request share
the limits: number, bytes, time. Redirects are followed at most `MAX_REDIRECTS` times, and each goes through the same judgement
(media_urls.py). Nothing of the client's request, no key and no cookie goes along. What was fetched stands in the request as
if the client had sent it. Source: protocol-facts.md section 6.4; OWASP, "Server Side Request Forgery Prevention Cheat Sheet".
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol
from urllib.parse import urljoin

import msgspec

from strom.core.errors import BadRequest, StromError, TooLarge, Unsupported
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Request,
    ToolResultPart,
)
from strom.gateway.media_urls import Place, choose_address, parse_place
from strom.gateway.unsent import Unsent
from strom.transport.connect import ConnectError, TlsContexts
from strom.transport.download import Downloaded, TooLong, download
from strom.transport.types import Headers, Origin, OutgoingRequest
from strom.upstreams.upstream import Upstream

MAX_REDIRECTS = 3
_NO_ADDRESSES = frozenset(("ollama",))
"""Protocols that have data alone. Source: protocol-facts.md section 4."""
_HEADERS: Headers = [
    (b"accept", b"image/png, image/jpeg, image/gif, image/webp, application/pdf, text/plain"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"strom"),
]
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_SAME_TYPES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "application/x-pdf": "application/pdf"}
_UNTOLD = ("", "application/octet-stream", "binary/octet-stream")
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class MediaLimits(msgspec.Struct, frozen=True):
    """For all media of one request together."""

    max_items: int = 10
    max_bytes: int = 20_971_520
    timeout_s: float = 20.0


Remote = ImagePart | DocumentPart
Resolve = Callable[[Origin], Awaitable[list[str]]]


class Get(Protocol):
    def __call__(
        self, origin: Origin, address: str, request: OutgoingRequest, *, tls: TlsContexts, max_bytes: int
    ) -> Awaitable[Downloaded]: ...


# --- what a request holds ----------------------------------------------------------------------------


def wants_data(request: Request, upstream: Upstream, limits: MediaLimits | None) -> bool:
    """Whether something has to be fetched for this backend. Raises Unsupported when that is off, or is too much."""
    if upstream.quirks.media_urls and upstream.protocol not in _NO_ADDRESSES:
        return False
    if not upstream.quirks.images:
        return False  # the encoder says what is refused
    remote = [(where, part) for where, part in _parts(request) if _is_remote(part)]
    if not remote:
        return False
    if limits is None:
        raise Unsupported(
            f"{remote[0][0]}: the backend {upstream.name!r} takes {_named(remote[0][1])} only as data, not by address. "
            "Send the data, or let the gateway fetch it: [server] fetch_media = true.",
            param="messages",
        )
    if len(remote) > limits.max_items:
        most = f"{limits.max_items} ([server] media_max_items)"
        raise BadRequest(
            f"The request gives {len(remote)} media by address; at most {most} are fetched.", param="messages"
        )
    return True


def needs_encoding(request: Request, upstream: Upstream) -> bool:
    """Whether a request of the backend's own protocol holds what it cannot take: then it is not relayed but encoded, and
    the encoder carries it as text, or refuses it by name."""
    if upstream.quirks.images:
        return False
    return any(
        isinstance(part, ImagePart | DocumentPart | AudioPart) or (isinstance(part, OpaquePart) and part.is_medium)
        for _, part in _parts(request)
    )


def _parts(request: Request) -> Iterator[tuple[str, Part]]:
    for at, message in enumerate(request.messages):
        for part in message.parts:
            yield f"messages[{at}]", part
            if isinstance(part, ToolResultPart):
                for inner in part.content:
                    yield f"messages[{at}]", inner


def _is_remote(part: Part) -> bool:
    return isinstance(part, Remote) and bool(part.url) and not part.url.startswith("data:")


def _named(part: Part) -> str:
    return "an image" if isinstance(part, ImagePart) else "a document"


# --- fetching ------------------------------------------------------------------------------------------


async def resolve(origin: Origin) -> list[str]:
    """All addresses of a host, in the system's order. Empty when there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetching(Unsent):
    """The media of one request under way. Stands for the exchange: whoever gives up the attempt aborts it like any other."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def abort(self) -> None:
        self._task.cancel()


class MediaFetcher:
    """One per process. `resolve` and `get` are the network."""

    def __init__(self, resolve: Resolve = resolve, get: Get = download) -> None:
        self._resolve = resolve
        self._get = get
        self._tls = TlsContexts()

    def start(self, request: Request, limits: MediaLimits, done: Callable[[Request | StromError], None]) -> Fetching:
        """Fetches what stands in `request` by address. `done` is called once, with the filled request or with what went wrong,
        unless it is aborted before."""
        return Fetching(asyncio.get_running_loop().create_task(self._run(request, limits, done)))

    async def _run(self, request: Request, limits: MediaLimits, done: Callable[[Request | StromError], None]) -> None:
        result: Request | StromError
        try:
            async with asyncio.timeout(limits.timeout_s):
                result = await self.fill(request, limits)
        except TimeoutError:
            limit = f"{limits.timeout_s:g} s ([server] media_timeout_s)"
            result = BadRequest(f"The media of the request could not be fetched within {limit}.", param="messages")
        except StromError as error:
            result = error
        done(result)

    async def fill(self, request: Request, limits: MediaLimits) -> Request:
        """The request with data in the place of addresses. Raises BadRequest, TooLarge."""
        fetched: dict[tuple[str, bool], tuple[str, str]] = {}
        left = limits.max_bytes
        for where, part in _parts(request):
            if not isinstance(part, Remote) or not _is_remote(part):
                continue
            key = _key(part)
            if key not in fetched:
                body, media_type = await self._fetch(part, where, left)
                left -= len(body)
                fetched[key] = (media_type, base64.b64encode(body).decode("ascii"))
        messages = tuple(_filled(message, fetched) for message in request.messages)
        return msgspec.structs.replace(request, messages=messages)

    async def _fetch(self, part: Remote, where: str, max_bytes: int) -> tuple[bytes, str]:
        url = part.url
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._ask(parse_place(url, where), where, max_bytes)
            location = _location(found)
            if location is None:
                return found.body, _media_type(part, found, where)
            url = urljoin(url, location)
        raise BadRequest(f"{where}: its address redirects more than {MAX_REDIRECTS} times.", param="messages")

    async def _ask(self, place: Place, where: str, max_bytes: int) -> Downloaded:
        address = choose_address(await self._resolve(place.origin), where)
        request = OutgoingRequest("GET", place.target, _HEADERS)
        try:
            found = await self._get(place.origin, address, request, tls=self._tls, max_bytes=max_bytes)
        except TooLong:
            raise TooLarge(
                f"{where}: what its address leads to is too long ([server] media_max_bytes, for all media together).",
                param="messages",
            ) from None
        except ConnectError as error:
            raise BadRequest(f"{where}: its address cannot be fetched.", detail=str(error), param="messages") from None
        except ValueError:
            raise BadRequest(f"{where}: its address cannot be asked for.", param="messages") from None
        if found.status != 200 and not 300 <= found.status < 400:
            raise BadRequest(f"{where}: its address answers with status {found.status}.", param="messages")
        return found


def _location(found: Downloaded) -> str | None:
    """Where a redirect leads; None for an answer."""
    if found.status == 200:
        return None
    return next((value.decode("latin-1") for name, value in found.headers if name == b"location"), "")


def _media_type(part: Remote, found: Downloaded, where: str) -> str:
    """As the host says, or as the bytes begin where it says nothing. Raises BadRequest for what the part cannot be."""
    told = next((value for name, value in found.headers if name == b"content-type"), b"").decode("latin-1")
    media_type = told.partition(";")[0].strip().lower()
    media_type = _SAME_TYPES.get(media_type, media_type)
    if media_type in _UNTOLD:
        media_type = _sniffed(found.body) or media_type
    if isinstance(part, ImagePart):
        fits = media_type in _IMAGE_TYPES
    else:
        fits = media_type == "application/pdf" or media_type.startswith("text/")
    if not fits or not found.body:
        what = f"{media_type or 'of no known type'}, {len(found.body)} bytes"
        raise BadRequest(f"{where}: its address does not lead to {_named(part)} ({what}).", param="messages")
    return media_type


def _sniffed(body: bytes) -> str:
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS if body.startswith(start)), "")


def _key(part: Remote) -> tuple[str, bool]:
    return part.url, isinstance(part, ImagePart)


Fetched = dict[tuple[str, bool], tuple[str, str]]


def _filled(message: Message, fetched: Fetched) -> Message:
    return msgspec.structs.replace(message, parts=tuple(_filled_part(part, fetched) for part in message.parts))


def _filled_part(part: Part, fetched: Fetched) -> Part:
    if isinstance(part, ToolResultPart):
        content = tuple(_filled_medium(p, fetched) if isinstance(p, Remote) else p for p in part.content)
        return msgspec.structs.replace(part, content=content)
    return _filled_medium(part, fetched) if isinstance(part, Remote) else part


def _filled_medium(part: Remote, fetched: Fetched) -> Remote:
    if not _is_remote(part):
        return part
    media_type, data = fetched[_key(part)]
    return msgspec.structs.replace(part, media_type=media_type, data=data, url="")
