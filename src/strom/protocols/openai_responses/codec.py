"""The functions of this protocol gathered as a `Codec`. What the endpoints around a response store need is in stored.py."""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.events import Event
from strom.core.evidence import Evidence
from strom.core.messages import Reply, Request
from strom.protocols.codec import Codec, EncodedError, Headers, Quirks, ReplyContext, Target, UpstreamCall
from strom.protocols.openai_responses import errors, upstream_errors
from strom.protocols.openai_responses.decode_request import decode_request
from strom.protocols.openai_responses.decoder import Decoder
from strom.protocols.openai_responses.encode_request import encode_request, relay_request
from strom.protocols.openai_responses.encoder import Encoder
from strom.protocols.openai_responses.relay import Relay
from strom.protocols.openai_responses.reply import decode_reply, encode_reply, relay_reply
from strom.protocols.openai_responses.schema import NAME


class OpenAIResponses:
    """Stateless; satisfies `Codec`."""

    name = NAME
    stream_content_type = b"text/event-stream; charset=utf-8"
    forward_request_headers = frozenset((b"openai-beta",))
    forward_response_headers: tuple[bytes, ...] = upstream_errors.KEPT_HEADERS

    def decode_request(self, body: bytes) -> Request:
        return decode_request(body)

    def encoder(self, context: ReplyContext) -> Encoder:
        return Encoder(context)

    def encode_reply(self, reply: Reply, context: ReplyContext) -> bytes:
        return encode_reply(reply, context)

    def encode_error(self, error: StromError, request_id: str) -> EncodedError:
        return errors.encode_error(error, request_id)

    def encode_request(self, request: Request, target: Target) -> UpstreamCall:
        return encode_request(request, target)

    def decoder(self, quirks: Quirks) -> Decoder:
        return Decoder(quirks)

    def decode_reply(self, body: bytes, quirks: Quirks) -> list[Event]:
        return decode_reply(body, quirks)

    def decode_error(self, status: int, headers: Headers, body: bytes) -> StromError:
        return upstream_errors.decode_error(status, headers, body)

    def relay_request(self, body: bytes, request: Request, target: Target) -> UpstreamCall:
        return relay_request(body, request, target)

    def relay(self, context: ReplyContext, quirks: Quirks) -> Relay:
        return Relay(context, quirks)

    def relay_whole(self, body: bytes, context: ReplyContext, quirks: Quirks, evidence: Evidence) -> bytes:
        events = decode_reply(body, quirks)
        evidence.observe(events)
        return b"" if evidence.error is not None else relay_reply(body, context, events)

    def relay_reply(self, body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
        return relay_reply(body, context, events)


CODEC: Codec = OpenAIResponses()
