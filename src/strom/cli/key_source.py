"""Where `strom keys` works: in a store, or through the platform API of a running gateway.

Both take and give JSON objects in the words of `/platform/v1/keys`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import click
import msgspec

from strom.cli.http import Api, gateway_api
from strom.core.errors import BadRequest, ConfigError, ProviderError
from strom.policies.key_making import KeyMaker, Made, prefix_of
from strom.server.platform_keys import PATH, key_row, made_body, scopes_of
from strom.server.platform_types import NewKey
from strom.stores.table import open_key_store

Row = dict[str, Any]


class KeySource(Protocol):
    """Raises StromError."""

    def list(self, limit: int, cursor: str | None) -> tuple[list[Row], str | None]: ...

    def show(self, wanted: str) -> Row: ...

    def create(self, body: Row) -> Row:
        """The key and its secret."""
        ...

    def rotate(self, wanted: str, overlap_s: float) -> Row: ...

    def revoke(self, wanted: str) -> Row: ...

    def set_disabled(self, wanted: str, *, disabled: bool) -> Row: ...


class StoreKeys:
    """A KeySource. Running gateways see a change within seconds."""

    def __init__(self, maker: KeyMaker) -> None:
        self._maker = maker

    def list(self, limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
        page = self._maker.list(limit, cursor)
        return [_plain(key_row(key)) for key in page.keys], page.next_cursor

    def show(self, wanted: str) -> Row:
        return _plain(key_row(self._maker.find(wanted)))

    def create(self, body: Row) -> Row:
        try:
            asked = msgspec.convert(body, NewKey)
        except msgspec.ValidationError as error:
            raise BadRequest(str(error)) from None
        expires_at = asked.expires_at.timestamp() if asked.expires_at is not None else None
        return _made(self._maker.create(asked.name, scopes_of(asked), expires_at))

    def rotate(self, wanted: str, overlap_s: float) -> Row:
        return _made(self._maker.rotate(wanted, overlap_s))

    def revoke(self, wanted: str) -> Row:
        return _plain(key_row(self._maker.revoke(wanted)))

    def set_disabled(self, wanted: str, *, disabled: bool) -> Row:
        return _plain(key_row(self._maker.set_disabled(wanted, disabled=disabled)))


class GatewayKeys:
    """A KeySource."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
        params = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        answer = self._api.get(f"{PATH}?{urlencode(params)}")
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            raise ProviderError("the answer is no list of keys: is --url the address of a Strom gateway?")
        return answer["data"], answer.get("next_cursor")

    def show(self, wanted: str) -> Row:
        return self._send("GET", wanted)

    def create(self, body: Row) -> Row:
        answer: Row = self._api.send("POST", PATH, body)
        return answer

    def rotate(self, wanted: str, overlap_s: float) -> Row:
        return self._send("POST", wanted, "/rotate", {"overlap_s": overlap_s})

    def revoke(self, wanted: str) -> Row:
        return self._send("DELETE", wanted)

    def set_disabled(self, wanted: str, *, disabled: bool) -> Row:
        return self._send("POST", wanted, "/disable" if disabled else "/enable", {})

    def _send(self, method: str, wanted: str, action: str = "", body: Row | None = None) -> Row:
        answer: Row = self._api.send(method, f"{PATH}/{quote(prefix_of(wanted), safe='')}{action}", body)
        return answer


def open_keys(url: str | None, key_env: str | None, store: str | None, path: Path | None) -> KeySource:
    """What the options say about where the keys are. Raises StromError, UsageError."""
    if sum(value is not None for value in (url, store, path)) > 1:
        raise click.UsageError("--url, --store and --config exclude each other")
    if key_env is not None and url is None:
        raise click.UsageError("--key-env belongs to --url")
    if url is not None:
        return GatewayKeys(gateway_api(url, key_env))
    return StoreKeys(_maker(store, path))


def _maker(store: str | None, path: Path | None) -> KeyMaker:
    from strom.config.load import load_settings
    from strom.config.settings import Overrides

    if store is not None:
        return KeyMaker(open_key_store(_kept(store)))
    settings = load_settings(path, Overrides(), os.environ)
    configured = path is not None or bool(os.environ.get("STROM_CONFIG"))
    policies = {policy.id for policy in settings.policies} if configured else None
    taken = {key.name for key in settings.keys}
    return KeyMaker(open_key_store(_kept(settings.store_url)), taken=taken, policies=policies)


def _kept(url: str) -> str:
    if url.startswith("memory:"):
        raise ConfigError("only the process that has a memory:// store can change it: ask the gateway with --url")
    return url


def _made(made: Made) -> Row:
    return _plain(made_body(made))


def _plain(body: msgspec.Struct) -> Row:
    row: Row = msgspec.to_builtins(body)
    return row
