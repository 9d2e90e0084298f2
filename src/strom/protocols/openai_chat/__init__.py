"""OpenAI Chat Completions: `POST /v1/chat/completions`. `CODEC` is what the rest of Strom knows of it."""

from __future__ import annotations

from strom.protocols.codec import Codec, Quirks, Relay, ReplyContext, StreamDecoder, StreamEncoder
from strom.protocols.openai_chat import errors, reply, reply_relay, request, request_out
from strom.protocols.openai_chat.encoder import ChatEncoder
from strom.protocols.openai_chat.relay import ChatRelay
from strom.protocols.openai_chat.stream import ChatDecoder


class _ChatCodec:
    """See codec.Codec."""

    name = "openai-chat"
    stream_content_type = b"text/event-stream; charset=utf-8"
    forward_request_headers: frozenset[bytes] = frozenset(
        (b"openai-organization", b"openai-project", b"openai-beta", b"idempotency-key", b"http-referer", b"x-title")
    )
    forward_response_headers: tuple[bytes, ...] = (*errors.KEPT_HEADERS, b"openai-")

    decode_request = staticmethod(request.decode_request)
    encode_reply = staticmethod(reply.encode_reply)
    encode_error = staticmethod(errors.encode_error)
    encode_request = staticmethod(request_out.encode_request)
    decode_reply = staticmethod(reply.decode_reply)
    decode_error = staticmethod(errors.decode_error)
    relay_request = staticmethod(request_out.relay_request)
    relay_reply = staticmethod(reply_relay.relay_reply)
    relay_whole = staticmethod(reply_relay.relay_whole)

    def encoder(self, context: ReplyContext) -> StreamEncoder:
        return ChatEncoder(context)

    def decoder(self, quirks: Quirks) -> StreamDecoder:
        return ChatDecoder(quirks)

    def relay(self, context: ReplyContext, quirks: Quirks) -> Relay:
        return ChatRelay(context, quirks)


CODEC: Codec = _ChatCodec()
