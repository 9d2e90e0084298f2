"""What every store of managed keys does: memory, SQLite, PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from strom.core.access import Budget, Limits
from strom.core.errors import BadRequest, GatewayError
from strom.stores.keys import KeyScopes, KeySecret, KeyStore, ManagedKey
from strom.stores.keys_memory import MemoryKeys
from strom.stores.table import open_key_store


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path / 'strom.db'}"
        case _:
            found: str = request.getfixturevalue("postgres_database")
            return found


@pytest.fixture
def store(url: str) -> Iterator[KeyStore]:
    made = open_key_store(url)
    yield made
    made.close()


SCOPES = KeyScopes("eu", ("m-*",), ("/v1/*",), True, True, Limits(5, budget=Budget(2.5, "EUR")))


def key(name: str, at: float = 1.0, scopes: KeyScopes = KeyScopes()) -> ManagedKey:  # noqa: B008 (frozen)
    return ManagedKey(f"id-{name}", name, f"sk-strom-id-{name}", at, scopes)


def add(store: KeyStore, *names: str) -> None:
    for at, name in enumerate(names):
        store.create(key(name, float(at)), KeySecret(f"hash-{name}", f"id-{name}", float(at)))


def test_what_is_created_is_found_whole(store: KeyStore) -> None:
    made = key("a", 1.25, SCOPES)
    store.create(made, KeySecret("hash", made.id, 1.25))
    snapshot = store.snapshot()
    assert snapshot.keys == (made,)
    assert snapshot.secrets == (KeySecret("hash", made.id, 1.25),)
    for wanted in (made.id, made.name, made.prefix):
        assert store.find(wanted) == [made]
    assert store.find("nobody") == []


def test_a_name_is_free_again_when_its_key_is_revoked(store: KeyStore) -> None:
    add(store, "a")
    with pytest.raises(BadRequest, match="already"):
        store.create(ManagedKey("other", "a", "sk-other", 2.0), KeySecret("h2", "other", 2.0))
    assert len(store.snapshot().secrets) == 1
    store.revoke("id-a", 5.0)
    store.revoke("id-a", 6.0)
    store.create(ManagedKey("other", "a", "sk-other", 7.0), KeySecret("h2", "other", 7.0))
    assert [found.revoked_at for found in store.find("a")] == [None, 5.0]


def test_the_version_rises_with_every_change_that_matters(store: KeyStore) -> None:
    versions = [store.version()]
    add(store, "a")
    versions.append(store.version())
    store.set_disabled("id-a", disabled=True)
    versions.append(store.version())
    store.rotate(KeySecret("h2", "id-a", 2.0), 9.0)
    versions.append(store.version())
    store.revoke("id-a", 5.0)
    versions.append(store.version())
    assert versions == sorted(set(versions))
    store.touch({"id-a": 7.0})
    assert store.version() == versions[-1]
    assert store.snapshot().version == versions[-1]
    (found,) = store.find("id-a")
    assert (found.disabled, found.revoked_at, found.last_used_at) == (True, 5.0, 7.0)


def test_a_replaced_secret_ends_with_the_overlap(store: KeyStore) -> None:
    add(store, "a")
    store.rotate(KeySecret("h2", "id-a", 2.0), 10.0)
    store.rotate(KeySecret("h3", "id-a", 3.0), 20.0)
    ends = {secret.sha256: secret.expires_at for secret in store.snapshot().secrets}
    assert ends == {"hash-a": 10.0, "h2": 20.0, "h3": None}


def test_pages_are_newest_first_and_stay_right(store: KeyStore) -> None:
    add(store, "a", "b", "c")
    first = store.list(2)
    assert [found.name for found in first.keys] == ["c", "b"]
    store.create(key("d", 9.0), KeySecret("hd", "id-d", 9.0))
    second = store.list(2, first.next_cursor)
    assert [found.name for found in second.keys] == ["a"]
    assert second.next_cursor is None
    with pytest.raises(BadRequest, match="cursor"):
        store.list(2, "nonsense")


def test_of_two_that_want_one_name_at_once_one_gets_it(store: KeyStore, url: str) -> None:
    outcomes: list[str] = []
    stores = [store, store if url == "memory://" else open_key_store(url)]

    def create(number: int) -> None:
        try:
            stores[number].create(
                ManagedKey(f"i{number}", "same", f"p{number}", 1.0), KeySecret(f"h{number}", f"i{number}", 1.0)
            )
            outcomes.append("made")
        except (BadRequest, GatewayError):
            outcomes.append("refused")

    threads = [threading.Thread(target=create, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused"]
    assert len(store.find("same")) == 1
    if stores[1] is not store:
        stores[1].close()


def test_keys_outlive_the_process_that_made_them(url: str, store: KeyStore) -> None:
    """Except in memory, which keeps nothing."""
    add(store, "a")
    other = open_key_store(url)
    kept = [] if isinstance(store, MemoryKeys) else ["a"]
    assert [found.name for found in other.snapshot().keys] == kept
    other.close()
