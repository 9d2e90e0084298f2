"""`/platform/v1/keys`: managed keys. A secret is in the answer that makes it, and in no other.

A key is named by its id, its prefix or its name; revoking is for good, and the key stays in the list. What is changed here
counts in this process at once, and everywhere within `managed_keys.TAKES_EFFECT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import TypeVar

import msgspec

from strom.core.access import Budget, Limits
from strom.core.errors import BadRequest
from strom.gateway.gateway import Gateway
from strom.policies.key_making import KeyMaker, Made
from strom.policies.managed_keys import ManagedKeys
from strom.server.platform import Platform
from strom.server.platform_operations import ROOT, Asked
from strom.server.platform_types import BudgetBody, KeyPageBody, KeyRow, LimitsBody, MadeKey, NewKey, RotateKey
from strom.stores.keys import KeyScopes, KeyStore, ManagedKey
from strom.stores.records import rfc3339

PATH = f"{ROOT}/keys"
R = TypeVar("R")
_LAST_YEAR = 9999


class PlatformKeys:
    """The store blocks: it is asked in a thread."""

    def __init__(self, gateway: Gateway, store: KeyStore, managed: ManagedKeys) -> None:
        self._gateway = gateway
        self._store = store
        self._managed = managed

    def register(self, platform: Platform) -> None:
        platform.register("list_keys", self._list)
        platform.register("create_key", self._create)
        platform.register("show_key", self._show)
        platform.register("revoke_key", self._revoke)
        platform.register("rotate_key", self._rotate)
        platform.register("disable_key", lambda asked: self._switch(asked, disabled=True))
        platform.register("enable_key", lambda asked: self._switch(asked, disabled=False))

    async def _list(self, asked: Asked) -> bytes:
        page = await asyncio.to_thread(self._store.list, asked.query.limit, asked.query.cursor or None)
        return msgspec.json.encode(KeyPageBody([key_row(key) for key in page.keys], page.next_cursor))

    async def _show(self, asked: Asked) -> bytes:
        return msgspec.json.encode(key_row(await asyncio.to_thread(self._maker().find, asked.names["key"])))

    async def _create(self, asked: Asked) -> bytes:
        body: NewKey = asked.body
        scopes, expires_at = scopes_of(body), expiry_of(body)
        made = await self._change(lambda: self._maker().create(body.name, scopes, expires_at))
        return msgspec.json.encode(made_body(made))

    async def _rotate(self, asked: Asked) -> bytes:
        body: RotateKey = asked.body
        made = await self._change(lambda: self._maker().rotate(asked.names["key"], body.overlap_s))
        return msgspec.json.encode(made_body(made))

    async def _revoke(self, asked: Asked) -> bytes:
        return msgspec.json.encode(key_row(await self._change(lambda: self._maker().revoke(asked.names["key"]))))

    async def _switch(self, asked: Asked, *, disabled: bool) -> bytes:
        step = partial(self._maker().set_disabled, asked.names["key"], disabled=disabled)
        return msgspec.json.encode(key_row(await self._change(step)))

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


def expiry_of(asked: NewKey) -> float | None:
    """Unix seconds; a time without a zone is UTC. Raises BadRequest."""
    expiry = asked.expires_at
    if expiry is None:
        return None
    if expiry.year >= _LAST_YEAR:
        raise BadRequest(f"expires_at: expected a time before the year {_LAST_YEAR}", param="expires_at")
    return (expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=UTC)).timestamp()


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
