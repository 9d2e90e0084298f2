"""`GET /platform/v1/policies/explain`: which endpoints of a model a caller can reach, and what stands against the others.

The names are looked up by the gateway's own router, so that what is said here and what is done cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import BadRequest, NotFound
from strom.gateway.gateway import Gateway
from strom.gateway.routing import Candidate, Router
from strom.policies.key_making import PREFIX, prefix_of
from strom.server.platform import Platform
from strom.server.platform_operations import Asked
from strom.server.platform_types import CandidateRow, Explanation


class PlatformPolicies:
    """`managed`: the keys that are not in the configuration."""

    def __init__(self, gateway: Gateway, managed: Callable[[], Iterable[KeySettings]]) -> None:
        self._gateway = gateway
        self._managed = managed

    def register(self, platform: Platform) -> None:
        platform.register("explain_policy", self.explain)

    async def explain(self, asked: Asked) -> bytes:
        """Raises StromError."""
        query, state = asked.query, self._gateway.state
        key = find_key([*state.keys.keys, *self._managed()], query.key) if query.key else None
        return msgspec.json.encode(explain(state.router, query.model, key, query.policy or None))


def explain(router: Router, model: str, key: KeySettings | None, wanted: str | None) -> Explanation:
    """Raises ModelNotFound, BadRequest."""
    if wanted is not None and wanted not in router.policies:
        known = ", ".join(sorted(router.policies)) or "none"
        raise BadRequest(f"There is no policy {wanted[:100]!r}. Known: {known}.", param="policy")
    own = key.policy if key is not None else None
    policies = list(dict.fromkeys(name for name in (own, wanted) if name is not None))
    rows = [_row(candidate) for candidate in router.survey(model, key, wanted)]
    return Explanation(model, key.name if key is not None else None, policies, rows)


def find_key(keys: Iterable[KeySettings], wanted: str) -> KeySettings:
    """By name, id or prefix. Of a secret that was pasted whole only the prefix is looked at. Raises NotFound."""
    wanted = prefix_of(wanted)
    known = list(keys)
    for key in known:
        if wanted == key.name or (key.id and wanted in (key.id, PREFIX + key.id)):
            return key
    shown = ", ".join(key.name for key in known[:20]) or "none"
    raise NotFound(f"There is no key {wanted[:100]!r}. Known: {shown}.", code="key_not_found", param="key")


def _row(candidate: Candidate) -> CandidateRow:
    endpoint, upstream = candidate.endpoint, candidate.endpoint.upstream
    return CandidateRow(
        endpoint_id=endpoint.id,
        model=candidate.model or None,
        fallback=candidate.fallback,
        order=endpoint.order,
        provider=upstream.name,
        region=upstream.region,
        sovereignty_class=upstream.sovereignty_class,
        retention=upstream.retention,
        qualifies=not candidate.objections,
        objections=candidate.objections,
    )
