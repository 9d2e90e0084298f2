"""What a request says of where it wants to go, beyond the name of its model."""

from __future__ import annotations

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import Request
from strom.gateway.affinity import HEADER as SESSION
from strom.transport.types import Headers

POLICY = b"x-strom-policy"
ENDPOINT = b"x-strom-endpoint"
MAX_ID = 512
WISHES = frozenset((POLICY, ENDPOINT, SESSION))


class Destination(msgspec.Struct, frozen=True):
    policy: str | None = None
    """A policy that the request adds to the key's."""
    endpoint: str | None = None
    """The id of the one endpoint it wants to go to, and may."""
    session: bytes = b""
    """What its client calls the conversation."""
    request: Request | None = None
    tokens: int = 0
    """Estimated length of the prompt; 0: unknown."""

    def of(self, request: Request, tokens: int) -> Destination:
        """The same for a request that has been read."""
        return Destination(self.policy, self.endpoint, self.session, request, tokens)


ANYWHERE = Destination()


def read_destination(headers: Headers) -> Destination:
    """What the headers say. Raises BadRequest for a policy or an endpoint that is named twice: to heed one of them would be a
    guess, and might loosen what the other demands."""
    policy: str | None = None
    endpoint: str | None = None
    session = b""
    for name, value in headers:
        if name == POLICY:
            policy = _only(POLICY, value, policy)
        elif name == ENDPOINT:
            endpoint = _only(ENDPOINT, value, endpoint)
        elif name == SESSION:
            session = value
    return Destination(policy, endpoint, session)


def _only(name: bytes, value: bytes, known: str | None) -> str:
    if known is not None:
        raise BadRequest(f"Send one {name.decode()} header, not several.")
    return value.decode("latin-1")[:MAX_ID]
