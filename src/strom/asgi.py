"""The gateway as an ASGI application, for whoever runs a server of his own.

    uvicorn strom.asgi:app                    settings from STROM_CONFIG and the other STROM_* variables
    app = strom.asgi.create_app("strom.toml")   inside another application: mount it at any path

The native server (`strom serve`) is the faster one; this is the same gateway behind a thin adapter (transport/asgi.py). There
is no search for local backends and no embedded model here: a configuration names the providers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from strom.app import Runtime
from strom.config.load import load_settings
from strom.config.settings import Overrides, Settings
from strom.core.errors import ConfigError
from strom.listening import server_limits
from strom.transport.asgi import AsgiAdapter, Message, Receive, Send
from strom.transport.types import Exchange

NO_PROVIDERS = "No providers are configured: name a file in STROM_CONFIG, or call create_app with one."


class Application:
    """An ASGI application. The gateway is made when the server starts, or with the first request where it is mounted."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError when there is no provider to serve."""
        if not settings.providers:
            raise ConfigError(NO_PROVIDERS)
        self._settings = settings
        self._runtime: Runtime | None = None
        self._adapter = AsgiAdapter(self._handle, server_limits(settings), self._start, self._stop)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._adapter(scope, receive, send)

    def _handle(self, exchange: Exchange) -> None:
        if self._runtime is None:
            self._runtime = Runtime(self._settings)
        self._runtime.handle(exchange)

    async def _start(self) -> None:
        self._runtime = Runtime(self._settings)

    async def _stop(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()


def create_app(config: str | Path | Settings | None = None, environ: Mapping[str, str] = os.environ) -> Application:
    """`config`: a file, settings, or None for what STROM_CONFIG names. Raises ConfigError with every error at once."""
    if isinstance(config, Settings):
        return Application(config)
    return Application(load_settings(Path(config) if config is not None else None, Overrides(), environ))


def __getattr__(name: str) -> Application:
    """`app` is made when a server asks for it, so that importing this module needs no configuration."""
    if name == "app":
        return create_app()
    raise AttributeError(name)
