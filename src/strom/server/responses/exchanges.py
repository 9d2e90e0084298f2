"""A client's exchange, from which the final Response object is taken at the end. Pieces pass in the turn in which they come."""

from __future__ import annotations

from collections.abc import Callable

from strom.gateway.attended import Attended
from strom.gateway.opening import Opening
from strom.gateway.services import Running
from strom.protocols.openai_responses.background import ended_response
from strom.server.exchanges import Forwarding
from strom.transport.types import Exchange, Headers


class StoringExchange(Forwarding, Attended):
    """Costs nothing per piece. `keep` gets the last object that went out, if there was one."""

    __slots__ = ("_keep", "write")

    def __init__(self, inner: Exchange, keep: Callable[[bytes], None]) -> None:
        super().__init__(inner)
        self.write = inner.write
        self._keep = keep

    def attend(self, call: Running, opening: Opening) -> None:
        if isinstance(self._inner, Attended):
            self._inner.attend(call, opening)

    def finish(self, data: bytes = b"") -> None:
        super().finish(data)
        response = ended_response(data)  # the terminal event leaves with the end
        if response:
            self._keep(response)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        super().respond(status, headers, body)
        if status == 200:
            self._keep(body)
