"""Response heads and error replies towards clients, in the caller's protocol."""

from __future__ import annotations

from strom.core.errors import StromError
from strom.protocols.codec import Codec
from strom.transport.types import Exchange, Headers

JSON = b"application/json"
_ID_HEADERS = {"anthropic": b"request-id", "openai-chat": b"x-request-id", "openai-responses": b"x-request-id"}


def id_headers(protocol: str, trace_id: str) -> Headers:
    """The trace id, under our name and under the one the client's SDK reads."""
    value = trace_id.encode()
    headers = [(b"x-strom-trace-id", value)]
    name = _ID_HEADERS.get(protocol)
    if name is not None:
        headers.append((name, value))
    return headers


def stream_headers(codec: Codec, trace_id: str) -> Headers:
    """Head of a streamed reply: nobody on the way may buffer, store or compress it."""
    return [
        (b"content-type", codec.stream_content_type),
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
        *id_headers(codec.name, trace_id),
    ]


def whole_headers(codec: Codec, trace_id: str) -> Headers:
    return [(b"content-type", JSON), *id_headers(codec.name, trace_id)]


def respond_error(exchange: Exchange, codec: Codec, error: StromError, trace_id: str) -> int:
    """Send the error as a whole response; returns its status."""
    encoded = codec.encode_error(error, trace_id)
    headers = whole_headers(codec, trace_id)
    known = {name for name, _ in headers}
    headers += [field for field in encoded.headers if field[0] not in known]
    headers += [field for field in error.headers if field[0] == b"allow"]
    exchange.respond(encoded.status, headers, encoded.body)
    return encoded.status
