"""Where `strom keys` works: in a store, or through the platform API of a running gateway.

Both take and give JSON objects in the words of `/platform/v1/keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from strom.cli.http import Api
from strom.core.errors import ConfigError, ProviderError
from strom.policies.key_making import KeyMaker, Made, prefix_of
from strom.server.platform_asking import misfit
from strom.server.platform_keys import PATH, expiry_of, key_row, made_body, scopes_of
from strom.server.platform_types import NewKey
from strom.stores.table import open_key_store

if TYPE_CHECKING:
    from strom.cli.place import Place

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
            raise misfit(error, "key", NewKey) from None
        return _made(self._maker.create(asked.name, scopes_of(asked), expiry_of(asked)))

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


def open_keys(place: Place) -> KeySource:
    """Raises StromError."""
    api = place.api()
    return GatewayKeys(api) if api is not None else StoreKeys(_maker(place))


def _maker(place: Place) -> KeyMaker:
    """A policy that a key may name is known only where there is a configuration."""
    if place.store is not None:
        return KeyMaker(open_key_store(_kept(place.store)))
    settings = place.settings()
    policies = {policy.id for policy in settings.policies} if place.configured else None
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
