"""Stored content at rest: sealed, bound to its place, readable with rotated keys, and nowhere in the files in the clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.core.errors import ConfigError, GatewayError
from strom.stores.options import StoreOptions
from strom.stores.responses import Events, Place, ResponseLimits, ResponseStore, StoredResponse
from strom.stores.sealing import KeySet, key_id, parse_key
from strom.stores.table import open_response_store
from tests.stores.kinds import sqlite_url

NEW, OLD = bytes(range(32)), bytes(range(7, 39))
SENTINEL = b"the quick brown sentinel"
PLACE = Place("anna", "r1")
LIMITS = ResponseLimits(retention_s=1e10)


def opened(url: str, *keys: bytes) -> ResponseStore:
    return open_response_store(url, LIMITS, StoreOptions(sealing=KeySet(keys) if keys else None))


def fill(store: ResponseStore) -> None:
    store.put(StoredResponse(PLACE, b'{"a":"%b"}' % SENTINEL, b'["%b"]' % SENTINEL, ("m1",), created_at=1.0))
    store.append_events(PLACE, Events(0, b"data: %b\n\n" % SENTINEL))


def check(store: ResponseStore) -> None:
    found = store.get(PLACE)
    assert found is not None
    assert SENTINEL in found.response
    assert SENTINEL in found.input_items
    assert SENTINEL in store.events(PLACE)[0].frames
    assert store.with_item("anna", "m1") == found


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = sqlite_url(tmp_path / "s.db") if request.param == "sqlite" else request.getfixturevalue("postgres_store")
    assert isinstance(found, str)
    return found


def test_what_is_sealed_is_read_again(url: str) -> None:
    store = opened(url, NEW)
    fill(store)
    check(store)
    store.close()


def test_keys_are_rotated(url: str) -> None:
    before = opened(url, OLD)
    fill(before)
    before.close()
    both = opened(url, NEW, OLD)
    check(both)
    fill(both)
    both.close()
    after = opened(url, NEW)
    check(after)
    after.close()


def test_without_its_key_content_is_an_error_and_not_garbage(url: str) -> None:
    store = opened(url, OLD)
    fill(store)
    store.close()
    for keys in ((), (NEW,)):
        store = opened(url, *keys)
        with pytest.raises(GatewayError, match="cannot be read"):
            store.get(PLACE)
        with pytest.raises(GatewayError, match="cannot be read"):
            store.events(PLACE)
        store.close()
    store = opened(url)
    assert store.delete(PLACE)  # which needs no key
    store.close()


def test_what_was_stored_in_the_clear_stays_readable(url: str) -> None:
    store = opened(url)
    fill(store)
    store.close()
    store = opened(url, NEW)
    check(store)
    store.close()


def test_no_file_holds_the_text(tmp_path: Path) -> None:
    """The database, its write-ahead log while it stands, and whatever else lies there."""
    store = opened(sqlite_url(tmp_path / "s.db"), NEW)
    for _ in range(20):
        fill(store)
    contents = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert "s.db-wal" in contents
    assert contents["s.db-wal"]
    store.close()
    contents["after"] = (tmp_path / "s.db").read_bytes()
    assert [name for name, content in contents.items() if SENTINEL in content] == []


def test_the_test_above_would_find_it(tmp_path: Path) -> None:
    store = opened(sqlite_url(tmp_path / "s.db"))
    fill(store)
    assert any(SENTINEL in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    store.close()


def test_a_sealed_value_belongs_to_its_place() -> None:
    keys = KeySet([NEW])
    sealed = keys.seal(b"text", ("anna", "r1", "response"))
    assert keys.open(sealed, keys.key_id, ("anna", "r1", "response")) == b"text"
    for place in (("anna", "r2", "response"), ("annar", "1", "response"), ("anna", "r1", "input_items")):
        with pytest.raises(GatewayError, match="does not belong"):
            keys.open(sealed, keys.key_id, place)
    with pytest.raises(GatewayError, match="does not belong"):
        keys.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), keys.key_id, ("anna", "r1", "response"))
    assert keys.seal(b"text", ("a",)) != keys.seal(b"text", ("a",))


def test_keys_do_not_show() -> None:
    keys = KeySet([NEW, OLD])
    assert repr(keys) == f"KeySet({key_id(NEW)}, …)"
    with pytest.raises(ConfigError, match="32 bytes"):
        KeySet([b"short"])


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, "A" * 44, NEW.hex()[:-2]])
def test_texts_that_are_no_key(text: str) -> None:
    with pytest.raises(ConfigError, match="32 random bytes") as caught:
        parse_key(text)
    assert not text or text not in caught.value.message
