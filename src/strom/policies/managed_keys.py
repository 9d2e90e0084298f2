"""Managed keys as every process sees them: a snapshot in memory, renewed in a thread of its own.

A change that this process makes counts here at once (`refresh`), and everywhere within `refresh_s` and the time of one read:
`TAKES_EFFECT_S` in all. While the store cannot be read the last snapshot stands. When keys were last used is noted in memory
and written once a minute, for all keys together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from strom.core.access import KeySettings
from strom.core.errors import StromError
from strom.policies.auth import Credential, Table, tabulate
from strom.stores.keys import KeyStore, ManagedKey, Snapshot

LOG = logging.getLogger("strom.keys")
REFRESH_S = 2.0
TAKES_EFFECT_S = 3.0
"""What is promised of a revocation, in every process and replica."""
TOUCH_S = 60.0


class ManagedKeys:
    """A ManagedTable. `refresh` raises StromError; `start` begins the thread that calls it."""

    def __init__(self, store: KeyStore, *, refresh_s: float = REFRESH_S, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._refresh_s = refresh_s
        self._wall = wall
        self._version: int | None = None
        self.table: Table = {}
        self.keys: tuple[KeySettings, ...] = ()
        """Those that have not been revoked."""
        self._used: dict[str, float] = {}
        self._touched_at = wall()
        self._refreshing = threading.Lock()
        self._stopped = threading.Event()
        self._failing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """With what the store holds now. Raises StromError when it cannot be read."""
        self.refresh()
        self._thread = threading.Thread(target=self._run, name="strom-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(5.0)
        try:
            self._touch()
        except StromError as error:
            LOG.warning("when keys were last used is not written: %s", error.message)
        self._store.close()

    def note_use(self, key_id: str) -> None:
        if key_id not in self._used:
            self._used[key_id] = self._wall()

    def refresh(self) -> None:
        """Blocks: not for the event loop's thread."""
        with self._refreshing:
            if self._store.version() != self._version:
                self._take(self._store.snapshot())

    def _take(self, snapshot: Snapshot) -> None:
        before = {key.id: key for key in self.keys}
        settings = {}
        for key in snapshot.keys:
            fresh = settings_of(key, snapshot)
            known = before.get(key.id)
            settings[key.id] = known if known == fresh else fresh  # what limits are remembered by stays the same
        self.table = tabulate(_credentials(snapshot, settings))
        self.keys = tuple([settings[key.id] for key in snapshot.keys if key.revoked_at is None])
        self._version = snapshot.version

    def _run(self) -> None:
        while not self._stopped.wait(self._refresh_s):
            try:
                self.refresh()
                if self._wall() - self._touched_at >= TOUCH_S:
                    self._touch()
            except StromError as error:
                if not self._failing:
                    LOG.warning("keys cannot be read, those known stand: %s (%s)", error.message, error.detail)
                self._failing = True
            else:
                self._failing = False

    def _touch(self) -> None:
        self._touched_at = self._wall()
        used, self._used = self._used, {}
        if used:
            self._store.touch(used)


def settings_of(key: ManagedKey, snapshot: Snapshot) -> KeySettings:
    """`sha256` is that of the newest secret."""
    secrets = [secret for secret in snapshot.secrets if secret.key_id == key.id]
    newest = max(secrets, key=lambda secret: secret.created_at).sha256 if secrets else ""
    scopes = key.scopes
    return KeySettings(
        key.name,
        newest,
        scopes.policy,
        scopes.models,
        scopes.limits,
        scopes.admin,
        routes=scopes.routes,
        may_pin_endpoint=scopes.may_pin_endpoint,
        expires_at=key.expires_at,
        disabled=key.disabled,
        id=key.id,
    )


def _credentials(snapshot: Snapshot, settings: dict[str, KeySettings]) -> Iterable[Credential]:
    revoked = {key.id for key in snapshot.keys if key.revoked_at is not None}
    for secret in snapshot.secrets:
        if secret.key_id in settings:
            yield Credential(
                bytes.fromhex(secret.sha256), settings[secret.key_id], secret.expires_at, secret.key_id in revoked
            )
