"""The functions of this protocol gathered as two `Codec`s: one for /api/chat, one for /api/generate.

They are the same but for where the text stands in a line and which path a relay asks; both have the name "ollama", so an
upstream that speaks Ollama relays either. A translated request always goes to /api/chat.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.core.errors import StromError
from strom.core.events import Event
from strom.core.evidence import Evidence
from strom.core.messages import Reply, Request
from strom.protocols.codec import Codec, EncodedError, Headers, Quirks, ReplyContext, Target, UpstreamCall
from strom.protocols.ollama import errors
from strom.protocols.ollama.decode_request import decode_chat, decode_generate
from strom.protocols.ollama.encode_request import encode_request, relay_request
from strom.protocols.ollama.encoder import OllamaEncoder
from strom.protocols.ollama.form import CHAT, GENERATE, Form
from strom.protocols.ollama.relay import OllamaRelay
from strom.protocols.ollama.reply import decode_reply, encode_reply, relay_reply
from strom.protocols.ollama.schema import NAME
from strom.protocols.ollama.stream import OllamaDecoder


class Ollama:
    """Stateless; satisfies `Codec`."""

    name = NAME
    stream_content_type = b"application/x-ndjson"
    forward_request_headers: frozenset[bytes] = frozenset()
    forward_response_headers: tuple[bytes, ...] = ()

    def __init__(self, form: Form, decode: Callable[[bytes], Request]) -> None:
        self._form = form
        self._decode = decode

    def decode_request(self, body: bytes) -> Request:
        return self._decode(body)

    def encoder(self, context: ReplyContext) -> OllamaEncoder:
        return OllamaEncoder(self._form, context)

    def encode_reply(self, reply: Reply, context: ReplyContext) -> bytes:
        return encode_reply(self._form, reply, context)

    def encode_error(self, error: StromError, request_id: str) -> EncodedError:
        return errors.encode_error(error, request_id)

    def encode_request(self, request: Request, target: Target) -> UpstreamCall:
        return encode_request(request, target)

    def decoder(self, quirks: Quirks) -> OllamaDecoder:
        return OllamaDecoder(quirks)

    def decode_reply(self, body: bytes, quirks: Quirks) -> list[Event]:
        return decode_reply(body, quirks)

    def decode_error(self, status: int, headers: Headers, body: bytes) -> StromError:
        return errors.decode_error(status, headers, body)

    def relay_request(self, body: bytes, request: Request, target: Target) -> UpstreamCall:
        return relay_request(self._form, body, target)

    def relay(self, context: ReplyContext, quirks: Quirks) -> OllamaRelay:
        return OllamaRelay(self._form, context, quirks)

    def relay_whole(self, body: bytes, context: ReplyContext, quirks: Quirks, evidence: Evidence) -> bytes:
        events = decode_reply(body, quirks)
        evidence.observe(events)
        return b"" if evidence.error is not None else relay_reply(self._form, body, context, events)

    def relay_reply(self, body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
        return relay_reply(self._form, body, context, events)


CODEC: Codec = Ollama(CHAT, decode_chat)
GENERATE_CODEC: Codec = Ollama(GENERATE, decode_generate)
