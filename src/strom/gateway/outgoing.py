"""The request that goes to an upstream: the client's own bytes on a relay, the canonical request encoded anew otherwise.

A request in the backend's own protocol is encoded anew, too, where it asks for what the backend cannot do and the gateway does
in its place (a JSON schema, media by address), or where the backend cannot take all of it.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import Unsupported
from strom.core.messages import Request
from strom.gateway.media import needs_encoding
from strom.gateway.plan import Endpoint
from strom.gateway.structured import AnswerCheck, FallbackMode, fall_back
from strom.protocols.codec import Codec, Target, UpstreamCall
from strom.transport.types import Headers, OutgoingRequest

BASE_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"strom"),
]
_ACCEPT_STREAM = (b"accept", b"text/event-stream, application/x-ndjson, application/json")
_ACCEPT_WHOLE = (b"accept", b"application/json")


class Incoming(msgspec.Struct, frozen=True):
    """What a client sent, decoded and raw. `filled`: media were fetched into `request`, which says more than `body` now."""

    codec: Codec
    request: Request
    body: bytes
    headers: Headers
    filled: bool = False


class Outgoing(msgspec.Struct, frozen=True):
    """`relays`: the answer can go to the client as it comes. `check`: what it has to pass before it counts as success."""

    request: OutgoingRequest
    call: UpstreamCall
    asked_stream: bool
    relays: bool = False
    check: AnswerCheck | None = None


def build_outgoing(incoming: Incoming, endpoint: Endpoint, codec: Codec, mode: FallbackMode = "prompt") -> Outgoing:
    """Raises what the codec raises: Unsupported, BadRequest. `mode`: [server] structured_fallback."""
    upstream = endpoint.upstream
    quirks = upstream.quirks
    wants_stream = (incoming.request.stream or quirks.always_stream) and not quirks.never_stream
    target = Target(endpoint.model or incoming.request.model, wants_stream, quirks)
    fallback = fall_back(incoming.request, upstream, mode)
    same = codec is incoming.codec
    forwarded = [field for field in incoming.headers if field[0] in codec.forward_request_headers] if same else []
    relays = same and fallback is None and not incoming.filled and not needs_encoding(incoming.request, upstream)
    if relays:
        call = codec.relay_request(incoming.body, incoming.request, target)
    else:
        if same:
            _refuse_choices(incoming.request)
        call = codec.encode_request(incoming.request if fallback is None else fallback.request, target)
    check = None
    if fallback is not None:
        check = fallback.check
        call = msgspec.structs.replace(call, dropped=(*call.dropped, fallback.note))
    accept = _ACCEPT_STREAM if wants_stream else _ACCEPT_WHOLE
    headers = [*BASE_HEADERS, accept, *merged(call.headers, forwarded), *upstream.auth_headers]
    request = OutgoingRequest("POST", upstream.target(call.path), headers, call.body)
    return Outgoing(request, call, wants_stream, relays and not call.tool_names, check)


def _refuse_choices(request: Request) -> None:
    """An encoder lets its own protocol's `n` pass, but only a relay carries several choices back."""
    if request.sampling.n is not None and request.sampling.n > 1:
        raise Unsupported("n > 1 cannot be translated for this backend: ask several times.", param="n")


def merged(own: Headers, clients: Headers) -> Headers:
    """Fields of both; one that the client sends replaces our default of the same name."""
    if not own or not clients:
        return own or clients
    names = {name for name, _ in clients}
    return [field for field in own if field[0] not in names] + clients
