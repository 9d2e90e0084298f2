"""The gateway: admits calls, and is the one place that knows router, keys, codecs and services together.

`state` (router, keys) is replaced as a whole on reload; running calls keep what they started with.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import AuthError, BadRequest, GatewayError, PermissionDenied, StromError, let_go
from strom.core.messages import Request
from strom.core.record import CallRecord, RecordError
from strom.gateway.admitting import Desk, HeldAnswer, LeaseGrant
from strom.gateway.attended import Attended
from strom.gateway.call import Call
from strom.gateway.callers import describe_caller
from strom.gateway.destination import ANYWHERE, WISHES, Destination, read_destination
from strom.gateway.estimate import request_tokens
from strom.gateway.intricacy import refuse_intricacy
from strom.gateway.opening import Opening
from strom.gateway.outgoing import Incoming
from strom.gateway.plan import Plan
from strom.gateway.refusals import NESTED, refusal_error
from strom.gateway.replying import make_context
from strom.gateway.responses import respond_error, whole_headers
from strom.gateway.routing import MAX_MODEL_NAME, Router
from strom.gateway.services import Services
from strom.policies.admission import Admission
from strom.policies.auth import MISSING, KeyRing, check_route
from strom.policies.limits import LimitBook
from strom.policies.slowdown import MAX_HELD, Slowdown
from strom.protocols.codec import Codec, ReplyContext
from strom.shared.memory import MemoryLimiter
from strom.transport.types import Exchange

LOG = logging.getLogger("strom.gateway")


AtOnce = Callable[[Request, ReplyContext], bytes | None]


class State(msgspec.Struct, frozen=True):
    router: Router
    keys: KeyRing
    may_pin_freely: bool = False
    """Whether callers without a key may name their endpoint: on a gateway that only its own machine can reach."""
    limits: LimitBook = LimitBook()


class Gateway:
    def __init__(self, services: Services, codecs: dict[str, Codec], state: State) -> None:
        self.services = services
        self.codecs = codecs
        self.state = state
        self.admission = Admission()
        self.slowdown = Slowdown(services.clock.time)
        self.desk = Desk(MemoryLimiter(services.clock.time, services.wall), services.wall)

    def handle_call(self, exchange: Exchange, codec: Codec, at_once: AtOnce | None = None) -> None:
        """A model call in the protocol of `codec`. Ends in a running Call, or in an error reply with its record.

        `at_once` answers the requests of a protocol that need no model, and gives None for all others.
        """
        record = CallRecord(self.services.new_trace_id(), started_at=self.services.wall(), protocol_in=codec.name)
        describe_caller(record, exchange.head, keep_peer=self.services.settings.keep_peer)
        self._guarded(exchange, codec, record, lambda: self._begin(exchange, codec, record, at_once))

    def _begin(self, exchange: Exchange, codec: Codec, record: CallRecord, at_once: AtOnce | None) -> None:
        opening = self._admit(exchange, codec, record)
        if at_once is not None and self._answered(exchange, opening, at_once):
            return
        request = opening.incoming.request
        demand = self.state.limits.demand(opening.key, request.model, opening.input_estimate, request.max_output_tokens)
        if demand is None:
            self._start(exchange, opening)
            return

        def decided(outcome: LeaseGrant | StromError) -> None:
            self._guarded(exchange, codec, record, lambda: self._proceed(exchange, opening, outcome))

        self.desk.reserve(demand, codec.name, decided)

    def _proceed(self, exchange: Exchange, opening: Opening, outcome: LeaseGrant | StromError) -> None:
        """Also for a client that has left meanwhile: its call ends as it begins."""
        if isinstance(outcome, StromError):
            raise outcome
        try:
            self._start(exchange, opening.granted(outcome))
        except BaseException:
            outcome.settle(opening.record)
            raise

    def _start(self, exchange: Exchange, opening: Opening) -> None:
        call = Call(self.services, self.codecs, exchange, opening)
        if isinstance(exchange, Attended):
            exchange.attend(call, opening)
        call.start()

    def _guarded(self, exchange: Exchange, codec: Codec, record: CallRecord, step: Callable[[], None]) -> None:
        """A step before there is a call: what fails is answered and recorded."""
        try:
            step()
        except StromError as error:
            self._reject(exchange, codec, record, error)
        except RecursionError:
            self._reject(exchange, codec, record, BadRequest(NESTED))
        except Exception as error:
            LOG.exception("call %s failed by a defect", record.trace_id)
            wrapped = GatewayError("The gateway failed while it read this request.", detail=repr(error)[:200])
            self._reject(exchange, codec, record, wrapped)

    def _answered(self, exchange: Exchange, opening: Opening, at_once: AtOnce) -> bool:
        incoming, record = opening.incoming, opening.record
        body = at_once(incoming.request, make_context(self.services, incoming, record, opening.input_estimate))
        if body is None:
            return False
        exchange.respond(200, whole_headers(incoming.codec, record.trace_id), body)
        record.http_status, record.status, record.complete = 200, "completed", True
        record.ended_at = self.services.wall()
        record.bytes_out = exchange.bytes_out
        self.services.settle(record)
        return True

    def identify(
        self, exchange: Exchange, *, admin: bool = False, record: CallRecord | None = None
    ) -> KeySettings | None:
        """The caller's key, which `record` names as soon as it is known, also where it is refused. Raises AuthError,
        PermissionDenied, or what stands against reading the request at all."""
        if exchange.refusal is not None:
            self._name(exchange, record)
            raise refusal_error(exchange.refusal)
        refuse_coding(exchange)
        try:
            key = self.state.keys.authenticate(exchange.head.headers)
        except AuthError as error:
            if error.message != MISSING:  # who sends nothing guesses nothing
                error.delay_s = self.slowdown.delay_s(exchange.head.peer)
            if record is not None:
                record.key_name = error.key_name
            raise
        if key is not None and record is not None:
            record.key_name, record.policy_id = key.name, key.policy  # also where it is refused before there is a plan
        if key is not None and key.routes:
            check_route(key, exchange.head.path)
        refuse_intricacy(exchange.body)
        if admin and self.state.keys.required and not (key is not None and key.admin):
            raise PermissionDenied("This endpoint needs an admin key.")
        return key

    def _name(self, exchange: Exchange, record: CallRecord | None) -> None:
        """Whose request it was that the transport did not take. The answer is the same for everybody: no guess learns of it."""
        if record is not None:
            with contextlib.suppress(AuthError):
                key = self.state.keys.authenticate(exchange.head.headers)
                if key is not None:
                    record.key_name, record.policy_id = key.name, key.policy

    def destination(self, exchange: Exchange, key: KeySettings | None) -> Destination:
        """Where the request wants to go. Raises BadRequest, and PermissionDenied for an endpoint that it may not name."""
        head = exchange.head
        if WISHES.isdisjoint(head.fields):
            return ANYWHERE
        destination = read_destination(head.headers)
        if destination.endpoint is not None:
            free = key is None and not self.state.keys.required and self.state.may_pin_freely
            if not free and not (key is not None and (key.may_pin_endpoint or key.admin)):
                raise PermissionDenied("x-strom-endpoint needs a key that may name endpoints (may_pin_endpoint).")
        return destination

    def plan_for(self, exchange: Exchange, key: KeySettings | None, model: str) -> Plan:
        """For what is no model call. Raises what `destination` and the router raise."""
        destination = self.destination(exchange, key)
        return self.state.router.plan(model, key, destination.policy, destination)

    def _admit(self, exchange: Exchange, codec: Codec, record: CallRecord) -> Opening:
        key = self.identify(exchange, record=record)
        self.admission.check(len(self.services.running))
        request = codec.decode_request(exchange.body)
        record.model_requested = request.model[:MAX_MODEL_NAME] or None
        record.streamed = request.stream
        destination, tokens = self.destination(exchange, key), request_tokens(request)
        router = self.state.router
        try:
            plan = router.plan(request.model, key, destination.policy, destination.of(request, tokens))
        except StromError:
            record.policy_id = router.policy_name(key, destination.policy)
            raise
        record.policy_id = plan.policy_id
        incoming = Incoming(codec, request, exchange.body, exchange.head.headers)
        return Opening(incoming, plan, record, tokens, key)

    def hold(self, exchange: Exchange, error: StromError, answer: Callable[[], None]) -> None:
        """`answer` at once, or late where somebody guesses keys."""
        let_go(error)
        delay_s = error.delay_s if isinstance(error, AuthError) else 0.0
        if delay_s <= 0 or exchange.closed:
            answer()
        elif self.slowdown.held >= MAX_HELD:
            exchange.abort()
            answer()  # for the record alone
        else:
            HeldAnswer(self.slowdown, exchange, answer).start(self.services.clock, delay_s)

    def _reject(self, exchange: Exchange, codec: Codec, record: CallRecord, error: StromError) -> None:
        self.hold(exchange, error, lambda: self._refuse(exchange, codec, record, error))

    def _refuse(self, exchange: Exchange, codec: Codec, record: CallRecord, error: StromError) -> None:
        record.http_status = respond_error(exchange, codec, error, record.trace_id)
        record.status = "rejected"
        record.fault = error.fault
        record.error = RecordError(error.code, error.message)
        record.ended_at = self.services.wall()
        record.bytes_out = exchange.bytes_out
        self.services.settle(record)


def refuse_coding(exchange: Exchange) -> None:
    """Raises BadRequest for a compressed body: read as it is, it would be garbage."""
    if b"content-encoding" not in exchange.head.fields:
        return
    codings = [value.strip().lower() for value in exchange.head.header_all(b"content-encoding")]
    if exchange.body and any(coding not in (b"", b"identity") for coding in codings):
        named = b", ".join(codings)[:40].decode("latin-1")
        raise BadRequest(f"Compressed request bodies ({named}) are not read here: send the body as it is.", status=415)
