"""The snapshot that every process keeps: what changes elsewhere is seen in time, and a store that fails changes nothing."""

from __future__ import annotations

import time

import pytest

from strom.core.errors import AuthError, GatewayError
from strom.policies.auth import KeyRing
from strom.policies.key_making import KeyMaker
from strom.policies.managed_keys import ManagedKeys
from strom.stores.keys import KeyScopes
from strom.stores.keys_memory import MemoryKeys
from tests.patience import wait_until


class Failing(MemoryKeys):
    failing = False

    def version(self) -> int:
        if self.failing:
            raise GatewayError("no store")
        return super().version()


def admitted(ring: KeyRing, secret: str) -> bool:
    try:
        return ring.authenticate([(b"x-api-key", secret.encode())]) is not None
    except AuthError:
        return False


def test_what_another_process_changes_is_seen_in_time_and_a_failing_store_changes_nothing() -> None:
    store = Failing()
    managed = ManagedKeys(store, refresh_s=0.02)
    managed.start()
    ring = KeyRing((), required=True, managed=managed)
    maker = KeyMaker(store)
    made = maker.create("ci", KeyScopes())
    wait_until(lambda: admitted(ring, made.secret))
    store.failing = True
    maker.revoke("ci")
    time.sleep(0.1)
    assert admitted(ring, made.secret)
    store.failing = False
    wait_until(lambda: not admitted(ring, made.secret))
    managed.close()


def test_when_a_key_was_used_is_written_in_one_go() -> None:
    store = MemoryKeys()
    made = KeyMaker(store).create("ci", KeyScopes())
    managed = ManagedKeys(store, wall=lambda: 5000.0)
    managed.start()
    ring = KeyRing((), required=True, managed=managed)
    for _ in range(3):
        assert admitted(ring, made.secret)
    assert store.find("ci")[0].last_used_at is None
    managed.close()
    assert store.find("ci")[0].last_used_at == 5000.0


def test_a_key_that_has_not_changed_stays_the_same_object() -> None:
    store = MemoryKeys()
    maker = KeyMaker(store)
    maker.create("a", KeyScopes())
    managed = ManagedKeys(store)
    managed.refresh()
    (before,) = managed.keys
    maker.create("b", KeyScopes())
    managed.refresh()
    assert len(managed.keys) == 2
    assert any(key is before for key in managed.keys)


def test_a_secret_is_kept_nowhere() -> None:
    store = MemoryKeys()
    made = KeyMaker(store).create("ci", KeyScopes())
    assert made.secret.rpartition("-")[2] not in repr(store.snapshot())


def test_without_a_store_there_is_no_start() -> None:
    failing = Failing()
    failing.failing = True
    with pytest.raises(GatewayError):
        ManagedKeys(failing).start()
