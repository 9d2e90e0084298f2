"""Response heads and error replies towards clients, in the caller's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.core.errors import StromError
from strom.protocols.codec import Codec
from strom.transport.types import Exchange, Headers

if TYPE_CHECKING:
    from strom.gateway.attempt import UpstreamAttempt

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


UPSTREAM_ID = b"x-strom-upstream-request-id"
"""What the upstream calls this request: for a question to its operator. Ours stands in `request-id` and `x-request-id`."""
_UPSTREAM_NAMES = (b"request-id", b"x-request-id")
"""Source: protocol-facts.md section 3.4 (Anthropic); OpenAI's API reference, "Debugging requests"."""


PLAIN = (b"allow", b"x-should-retry", UPSTREAM_ID)
"""Fields of an error that are the same in every protocol."""


def upstream_id(headers: Headers) -> Headers:
    """The upstream's own id as a field for the client; nothing where it gave none."""
    for name, value in headers:
        if name in _UPSTREAM_NAMES:
            return [(UPSTREAM_ID, value[:200])] if value else []
    return []


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
    known = {name for name, _ in headers}
    headers += [field for field in error.headers if field[0] in PLAIN and field[0] not in known]
    exchange.respond(encoded.status, headers, encoded.body)
    return encoded.status


def passed_headers(codec: Codec, attempt: UpstreamAttempt | None, own: Headers) -> Headers:
    """The upstream's id of the request, and rate limits: ours where they bind this client, else those of an upstream that
    speaks its protocol."""
    if attempt is None:
        return own
    passed = upstream_id(attempt.response_headers)
    if own or attempt.codec is not codec:
        return passed + own
    prefixes = codec.forward_response_headers
    return passed + [field for field in attempt.response_headers if field[0].startswith(prefixes)]
