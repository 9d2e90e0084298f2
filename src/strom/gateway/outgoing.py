"""The request that goes to an upstream: the client's own bytes on a relay, the canonical request encoded anew otherwise."""

from __future__ import annotations

import msgspec

from strom.core.messages import Request
from strom.gateway.plan import Endpoint
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
    """What a client sent, decoded and raw."""

    codec: Codec
    request: Request
    body: bytes
    headers: Headers


class Outgoing(msgspec.Struct, frozen=True):
    request: OutgoingRequest
    call: UpstreamCall
    asked_stream: bool


def build_outgoing(incoming: Incoming, endpoint: Endpoint, codec: Codec) -> Outgoing:
    """Raises what the codec raises: Unsupported, BadRequest."""
    quirks = endpoint.upstream.quirks
    wants_stream = (incoming.request.stream or quirks.always_stream) and not quirks.never_stream
    target = Target(endpoint.model or incoming.request.model, wants_stream, quirks)
    if codec is incoming.codec:
        call = codec.relay_request(incoming.body, incoming.request, target)
        forwarded = [field for field in incoming.headers if field[0] in codec.forward_request_headers]
    else:
        call = codec.encode_request(incoming.request, target)
        forwarded = []
    accept = _ACCEPT_STREAM if wants_stream else _ACCEPT_WHOLE
    headers = [*BASE_HEADERS, accept, *merged(call.headers, forwarded), *endpoint.upstream.auth_headers]
    request = OutgoingRequest("POST", endpoint.upstream.target(call.path), headers, call.body)
    return Outgoing(request, call, wants_stream)


def merged(own: Headers, clients: Headers) -> Headers:
    """Fields of both; one that the client sends replaces our default of the same name."""
    if not own or not clients:
        return own or clients
    names = {name for name, _ in clients}
    return [field for field in own if field[0] not in names] + clients
