"""What stands before the endpoints: who may ask at which port.

One surface serves everybody. Where operators have a port of their own, what is theirs answers there alone, and nothing else
does; at the other port it does not exist. Browsers are judged at both.
"""

from __future__ import annotations

from strom.core.errors import NotFound, StromError
from strom.server.app import App
from strom.server.browsers import BrowserRules
from strom.transport.types import Exchange, Handler

HEALTH = ("/healthz", "/readyz")
"""Answered at both ports."""


def is_for_operators(path: str) -> bool:
    return path.startswith("/platform/") or path in ("/platform", "/metrics")


class Front:
    """`handle` and `handle_admin` are handlers of the transport: they never raise and return at once."""

    def __init__(self, app: App, browsers: BrowserRules, *, admin_apart: bool) -> None:
        self._app = app
        self.pass_on: Handler = app.handle
        """Where admitted requests go; to be replaced by who wants to see each of them."""
        self.browsers = browsers
        self._apart = admin_apart

    def handle(self, exchange: Exchange) -> None:
        self._answer(exchange, hidden=self._apart and is_for_operators(exchange.head.path))

    def handle_admin(self, exchange: Exchange) -> None:
        path = exchange.head.path
        self._answer(exchange, hidden=not (is_for_operators(path) or path in HEALTH))

    def _answer(self, exchange: Exchange, *, hidden: bool) -> None:
        if exchange.refusal is None:
            try:
                admitted = self.browsers.admit(exchange)
                if admitted is None:
                    return
                exchange = admitted
                if hidden:
                    raise NotFound("There is no such endpoint at this port.")
            except StromError as error:
                self._app.refuse(exchange, error)
                return
        self.pass_on(exchange)
