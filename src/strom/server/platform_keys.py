"""`/platform/v1/keys`: managed keys. A secret is in the answer that makes it, and in no other.

    GET    /platform/v1/keys                    newest first, paged
    POST   /platform/v1/keys                    201, with the secret
    GET    /platform/v1/keys/{id}
    DELETE /platform/v1/keys/{id}               revoked for good; the key stays in the list
    POST   /platform/v1/keys/{id}/rotate        201, with a new secret
    POST   /platform/v1/keys/{id}/disable, /enable

A key is named by its id, its prefix or its name. What is changed here counts in this process at once, and everywhere within
`managed_keys.TAKES_EFFECT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC
from typing import TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from strom.core.access import Budget, Limits
from strom.core.errors import BadRequest, MethodNotAllowed, NotFound
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.policies.key_making import KeyMaker, Made
from strom.policies.managed_keys import ManagedKeys
from strom.server.platform import NEVER_CACHE
from strom.server.platform_types import BudgetBody, KeyPageBody, KeyRow, LimitsBody, MadeKey, NewKey, RotateKey
from strom.stores.keys import KeyScopes, KeyStore, ManagedKey
from strom.stores.query import parse_limit
from strom.stores.records import rfc3339
from strom.transport.types import Exchange

PATH = "/platform/v1/keys"
B = TypeVar("B", bound=msgspec.Struct)
R = TypeVar("R")


class PlatformKeys:
    """`answer` takes every method on the path and below it. The store blocks: it is asked in a thread."""

    def __init__(self, gateway: Gateway, store: KeyStore, managed: ManagedKeys) -> None:
        self._gateway = gateway
        self._store = store
        self._managed = managed

    async def answer(self, exchange: Exchange) -> None:
        """Raises StromError."""
        self._gateway.identify(exchange, admin=True)
        rest = exchange.head.path.removeprefix(PATH).strip("/")
        wanted, _, action = rest.partition("/")
        wanted = unquote(wanted)
        match exchange.head.method, wanted, action:
            case (("GET" | "HEAD"), "", ""):
                await self._list(exchange)
            case "POST", "", "":
                await self._create(exchange)
            case (("GET" | "HEAD"), _, "") if wanted:
                self._show(exchange, await asyncio.to_thread(self._maker().find, wanted))
            case "DELETE", _, "" if wanted:
                self._show(exchange, await self._change(lambda: self._maker().revoke(wanted)))
            case "POST", _, "rotate" if wanted:
                await self._rotate(exchange, wanted)
            case "POST", _, ("disable" | "enable") if wanted:
                off = action == "disable"
                self._show(exchange, await self._change(lambda: self._maker().set_disabled(wanted, disabled=off)))
            case _:
                raise _no_such(exchange, wanted, action)

    async def _list(self, exchange: Exchange) -> None:
        params = {name: values[-1] for name, values in parse_qs(exchange.head.query).items() if name != "stream"}
        limit, cursor = parse_limit(params.pop("limit", "")), params.pop("cursor", None)
        if params:
            name = next(iter(params))
            raise BadRequest(f"unknown query parameter {name[:100]!r}", param=name[:100])
        page = await asyncio.to_thread(self._store.list, limit, cursor)
        self._respond(exchange, 200, KeyPageBody([key_row(key) for key in page.keys], page.next_cursor))

    async def _create(self, exchange: Exchange) -> None:
        asked = decode_body(exchange, NewKey)
        expiry = asked.expires_at
        if expiry is not None and expiry.tzinfo is None:
            expiry = expiry.replace(tzinfo=UTC)
        expires_at = expiry.timestamp() if expiry is not None else None
        made = await self._change(lambda: self._maker().create(asked.name, scopes_of(asked), expires_at))
        self._respond(exchange, 201, made_body(made))

    async def _rotate(self, exchange: Exchange, wanted: str) -> None:
        asked = decode_body(exchange, RotateKey)
        made = await self._change(lambda: self._maker().rotate(wanted, asked.overlap_s))
        self._respond(exchange, 201, made_body(made))

    def _maker(self) -> KeyMaker:
        state = self._gateway.state
        return KeyMaker(
            self._store,
            taken={key.name for key in state.keys.keys},
            policies=state.router.policies,
            wall=self._gateway.services.wall,
        )

    async def _change(self, step: Callable[[], R]) -> R:
        def change() -> R:
            result = step()
            self._managed.refresh()
            return result

        return await asyncio.to_thread(change)

    def _show(self, exchange: Exchange, key: ManagedKey) -> None:
        self._respond(exchange, 200, key_row(key))

    def _respond(self, exchange: Exchange, status: int, body: msgspec.Struct) -> None:
        headers = [(b"content-type", b"application/json"), NEVER_CACHE]
        headers += id_headers("", self._gateway.services.new_trace_id())
        exchange.respond(status, headers, msgspec.json.encode(body))


def decode_body(exchange: Exchange, shape: type[B]) -> B:
    """An empty body is an empty object. Raises BadRequest, which repeats no value."""
    try:
        return msgspec.json.decode(exchange.body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("The body is not valid JSON.") from None


def scopes_of(asked: NewKey) -> KeyScopes:
    given = asked.limits
    budget = None if given.budget is None else Budget(given.budget.amount, given.budget.currency, given.budget.per)
    limits = Limits(given.requests_per_minute, given.tokens_per_minute, given.concurrent, budget)
    return KeyScopes(
        asked.policy, tuple(asked.models), tuple(asked.routes), asked.admin, asked.may_pin_endpoint, limits
    )


def made_body(made: Made) -> MadeKey:
    return MadeKey(key_row(made.key), made.secret)


def key_row(key: ManagedKey) -> KeyRow:
    scopes = key.scopes
    return KeyRow(
        key.id,
        key.name,
        key.prefix,
        rfc3339(key.created_at),
        _instant(key.expires_at),
        key.disabled,
        _instant(key.revoked_at),
        _instant(key.last_used_at),
        scopes.policy,
        list(scopes.models),
        list(scopes.routes),
        scopes.admin,
        scopes.may_pin_endpoint,
        _limits_body(scopes.limits),
    )


def _limits_body(limits: Limits) -> LimitsBody:
    budget = limits.budget
    body = None if budget is None else BudgetBody(budget.amount, budget.currency, budget.per)
    return LimitsBody(limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent, body)


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


def _no_such(exchange: Exchange, wanted: str, action: str) -> MethodNotAllowed | NotFound:
    """RFC 9110 section 15.5.6 demands the header of a 405."""
    allowed = {"": b"GET, HEAD, DELETE" if wanted else b"GET, HEAD, POST"}
    allowed |= dict.fromkeys(("rotate", "disable", "enable"), b"POST")
    if action not in allowed:
        return NotFound(f"There is no endpoint {exchange.head.path[:200]!r} here.")
    error = MethodNotAllowed(f"{exchange.head.path[:200]} takes {allowed[action].decode()}.")
    error.headers = [(b"allow", allowed[action])]
    return error
