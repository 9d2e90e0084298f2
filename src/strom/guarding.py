"""Keys and limits put together, as the settings say: the store of keys and its snapshot, the limiter and what it must know.

memory://   one process: in its memory; several workers of one run: in a file that they map (runtime_folder)
redis://    all processes and replicas
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from strom.config.settings import Settings
from strom.core.errors import ConfigError
from strom.gateway.admitting import Desk
from strom.gateway.gateway import Gateway
from strom.policies.auth import KeyRing
from strom.policies.limits import LimitBook
from strom.policies.managed_keys import ManagedKeys
from strom.policies.spending import Usage, seed_budgets
from strom.server.app import App
from strom.server.platform_keys import PlatformKeys
from strom.server.platform_limits import PlatformLimits
from strom.server.platform_policies import PlatformPolicies
from strom.shared.limiter import Limiter, Scope
from strom.shared.mapped import MappedLimiter, MappedTable
from strom.shared.memory import MemoryLimiter
from strom.shared.redis import RedisLimiter, RedisSettings
from strom.stores.keys import KeyStore

NO_KEYS = """\
callers must present a key ([auth] required), but there is none that they could present. Do one of these:
  strom keys create NAME --store {store}     make a key in the store; --admin for one that may ask /platform
  [[keys]] in the configuration              name a key's environment variable or its SHA-256
  --allow-unauthenticated                    serve everybody who reaches {host}"""


class Guard:
    """Made inside a running loop. `usage`: what the store says about past calls; blocks. Raises StromError."""

    def __init__(self, settings: Settings, store: KeyStore, usage: Usage) -> None:
        self._usage = usage
        self._store = store
        self.managed = ManagedKeys(store)
        self.managed.start()
        check_keys(settings, self.managed)
        self.limiter = make_limiter(settings)
        self.limiter.start()
        self._seeded: set[Scope] = set()

    def ring(self, settings: Settings) -> KeyRing:
        return KeyRing(settings.keys, required=settings.auth_required, managed=self.managed)

    def book(self, settings: Settings) -> LimitBook:
        """The limits of these settings; what their budgets have cost so far is told to the limiter."""
        models = [(model.name, model.aliases, model.limits) for model in settings.models]
        book = LimitBook(settings.limits.of_all, models, settings.limits.assumed_output_tokens)
        budgets = [scope for scope in book.budgets([*settings.keys, *self.managed.keys]) if scope not in self._seeded]
        if budgets:
            seed_budgets(self.limiter, book, budgets, self._usage, time.time())
            self._seeded.update(budgets)
        return book

    def attach(self, gateway: Gateway, app: App) -> None:
        gateway.desk = Desk(self.limiter, gateway.services.wall)
        PlatformKeys(gateway, self._store, self.managed).register(app.platform)
        PlatformLimits(gateway, lambda: self.managed.keys).register(app.platform)
        PlatformPolicies(gateway, lambda: self.managed.keys).register(app.platform)

    async def close(self) -> None:
        """After the last call: its settlement is sent, when keys were used is written."""
        await self.limiter.close()
        await asyncio.to_thread(self.managed.close)


def check_keys(settings: Settings, managed: ManagedKeys) -> None:
    """Raises ConfigError where nobody could ever be admitted."""
    if settings.auth_required and not settings.keys and not managed.keys:
        raise ConfigError(NO_KEYS.format(store=settings.store_url, host=settings.server.host))


def make_limiter(settings: Settings) -> Limiter:
    """Raises ConfigError when the package for Redis is not installed."""
    shared, workers = settings.shared, settings.server.workers
    if settings.shared_url != "memory://":
        if not _has_redis():
            raise ConfigError("for redis:// install the extra: pip install 'strom[redis]'")
        shares = max(shared.replicas_hint, workers)
        return RedisLimiter(
            RedisSettings(settings.shared_url, shared.on_failure, shares, shared.timeout_ms / 1000, shared.lease_s)
        )
    if workers > 1 and settings.runtime_folder is not None:
        # Twice, for workers that drain while others have taken their place.
        return MappedLimiter(MappedTable(Path(settings.runtime_folder, "limits"), 2 * workers + 2))
    return MemoryLimiter()


def _has_redis() -> bool:
    from importlib.util import find_spec

    return find_spec("redis") is not None
