"""The gateway: admits calls, and is the one place that knows router, keys, codecs and services together.

`state` (router, keys) is replaced as a whole on reload; running calls keep what they started with.
"""

from __future__ import annotations

import logging

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import ClientError, GatewayError, PermissionDenied, StromError
from strom.core.record import CallRecord, RecordError
from strom.gateway.call import Call
from strom.gateway.estimate import request_tokens
from strom.gateway.opening import Opening
from strom.gateway.outgoing import Incoming
from strom.gateway.refusals import refusal_error
from strom.gateway.responses import respond_error
from strom.gateway.routing import Router
from strom.gateway.services import Services
from strom.policies.auth import KeyRing
from strom.protocols.codec import Codec
from strom.transport.types import Exchange

LOG = logging.getLogger("strom.gateway")


class State(msgspec.Struct, frozen=True):
    router: Router
    keys: KeyRing


class Gateway:
    def __init__(self, services: Services, codecs: dict[str, Codec], state: State) -> None:
        self.services = services
        self.codecs = codecs
        self.state = state

    def handle_call(self, exchange: Exchange, codec: Codec) -> None:
        """A model call in the protocol of `codec`. Ends in a running Call, or in an error reply with its record."""
        record = CallRecord(self.services.new_trace_id(), started_at=self.services.wall(), protocol_in=codec.name)
        try:
            opening = self._admit(exchange, codec, record)
            Call(self.services, self.codecs, exchange, opening).start()
        except StromError as error:
            self._reject(exchange, codec, record, error)
        except Exception as error:
            LOG.exception("call %s failed by a defect", record.trace_id)
            wrapped = GatewayError("The gateway failed while it read this request.", detail=repr(error)[:200])
            self._reject(exchange, codec, record, wrapped)

    def identify(self, exchange: Exchange, *, admin: bool = False) -> KeySettings | None:
        """The caller's key. Raises AuthError, PermissionDenied, or the error behind a refusal of the transport."""
        if exchange.refusal is not None:
            raise refusal_error(exchange.refusal)
        key = self.state.keys.authenticate(exchange.head.headers)
        if admin and self.state.keys.required and not (key is not None and key.admin):
            raise PermissionDenied("This endpoint needs an admin key.")
        return key

    def _admit(self, exchange: Exchange, codec: Codec, record: CallRecord) -> Opening:
        key = self.identify(exchange)
        record.key_name = key.name if key is not None else None
        request = codec.decode_request(exchange.body)
        record.model_requested = request.model
        record.streamed = request.stream
        wanted = exchange.head.header(b"x-strom-policy")
        plan = self.state.router.plan(request.model, key, wanted.decode("latin-1") if wanted is not None else None)
        incoming = Incoming(codec, request, exchange.body, exchange.head.headers)
        return Opening(incoming, plan, record, request_tokens(request))

    def _reject(self, exchange: Exchange, codec: Codec, record: CallRecord, error: StromError) -> None:
        record.http_status = respond_error(exchange, codec, error, record.trace_id)
        record.status = "rejected" if isinstance(error, ClientError) else "failed"
        record.fault = error.fault
        record.error = RecordError(error.code, error.message)
        record.ended_at = self.services.wall()
        record.bytes_out = exchange.bytes_out
        self.services.records.put(record)
