"""From a model name to the endpoints that may serve it.

A name is looked up in this order: a configured model's name, an alias pattern, `provider/model`, and, where nothing is
configured and there is one provider, any name at all. Endpoints come by rising `order`; those of one order are drawn by weight.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from strom.core.access import KeySettings, PolicySettings
from strom.core.errors import BadRequest, ModelNotFound, PermissionDenied
from strom.gateway.plan import Endpoint, Plan
from strom.policies.sovereignty import all_allow
from strom.upstreams.settings import ModelSettings
from strom.upstreams.upstream import Upstream

MAX_MODEL_NAME = 512
"""Names of local models can be paths; what is longer is no name, and would stand in records and error texts."""

MAX_KNOWN_PLANS = 4096


class Model(msgspec.Struct, frozen=True):
    name: str
    aliases: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    continuation: bool = False


def may_use(key: KeySettings, model: str) -> bool:
    return not key.models or any(fnmatchcase(model, pattern) for pattern in key.models)


class Router:
    """Immutable; a reload makes a new one. `draw` gives a number in [0, 1)."""

    def __init__(
        self,
        upstreams: Iterable[Upstream],
        models: Iterable[ModelSettings],
        policies: Iterable[PolicySettings],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.models = {model.name: self._model(model) for model in models}
        self.policies = {policy.id: policy for policy in policies}
        self._patterns = [(alias, model) for model in self.models.values() for alias in model.aliases]
        self._draw = draw
        self._plans: dict[tuple[str, str | None, str | None], Plan] = {}

    def plan(self, model: str, key: KeySettings | None, wanted_policy: str | None) -> Plan:
        """Raises ModelNotFound, PermissionDenied, BadRequest."""
        question = (model, key.name if key is not None else None, wanted_policy)
        plan = self._plans.get(question)
        if plan is None:
            plan = self._work_out(model, key, wanted_policy)
            if len(plan.endpoints) == 1 and len(self._plans) < MAX_KNOWN_PLANS:  # others are drawn anew each time
                self._plans[question] = plan
        return plan

    def _work_out(self, model: str, key: KeySettings | None, wanted_policy: str | None) -> Plan:
        if not model:
            raise BadRequest("The request names no model.", param="model")
        if len(model) > MAX_MODEL_NAME:
            raise BadRequest(f"The model name is longer than {MAX_MODEL_NAME} characters.", param="model")
        endpoints, known = self._endpoints(model), model
        if not endpoints:  # Ollama's clients say :latest of their own accord
            known = model.removesuffix(":latest")
            endpoints = self._endpoints(known)
        if not endpoints:
            raise ModelNotFound(f"The model {model!r} is not served here. {self._hint()}", param="model")
        if key is not None and not may_use(key, model) and not may_use(key, known):
            raise PermissionDenied(f"This key may not use the model {model!r}.")
        policies = self._policies(key, wanted_policy)
        allowed = [endpoint for endpoint in endpoints if all_allow(policies, endpoint.upstream)]
        if not allowed:
            names = ", ".join(policy.id for policy in policies)
            raise PermissionDenied(
                f"No endpoint of the model {model!r} satisfies the policy {names}.", code="policy_refused"
            )
        policy_id = policies[-1].id if policies else None
        return Plan(self._ordered(allowed), model, policy_id, continuation=self._continues(known))

    def plain_aliases(self) -> list[tuple[str, Model]]:
        """Aliases that are names, not patterns."""
        return [(alias, model) for alias, model in self._patterns if not set(alias) & set("*?[")]

    def _model(self, settings: ModelSettings) -> Model:
        endpoints = tuple(
            Endpoint(
                entry.id,
                self.upstreams[entry.provider],
                entry.model,
                entry.order,
                entry.weight,
                entry.context_window,
                entry.price,
                settings.timeouts.replacing(self.upstreams[entry.provider].timeouts),
            )
            for entry in settings.endpoints
        )
        return Model(settings.name, settings.aliases, endpoints, settings.continuation)

    def _endpoints(self, name: str) -> Sequence[Endpoint]:
        if name in self.models:
            return self.models[name].endpoints
        for pattern, model in self._patterns:
            if fnmatchcase(name, pattern):
                return model.endpoints
        if self.models:
            return ()
        if len(self.upstreams) == 1:
            (upstream,) = self.upstreams.values()
            own = name.removeprefix(upstream.name + "/")
            return (Endpoint(upstream.name, upstream, own if own != name else ""),)
        provider, _, own = name.partition("/")
        if own and provider in self.upstreams:
            return (Endpoint(provider, self.upstreams[provider], own),)
        return ()

    def _continues(self, name: str) -> bool:
        model = self.models.get(name) or next((m for pattern, m in self._patterns if fnmatchcase(name, pattern)), None)
        return model is not None and model.continuation

    def _policies(self, key: KeySettings | None, wanted: str | None) -> list[PolicySettings]:
        """The key's policy and the request's; both bind."""
        ids = [key.policy] if key is not None and key.policy else []
        if wanted is not None and wanted not in ids:
            ids.append(wanted)
        missing = [name for name in ids if name not in self.policies]
        if missing:
            raise BadRequest(
                f"There is no policy {missing[0][:100]!r}. Known: {', '.join(sorted(self.policies)) or 'none'}."
            )
        return [self.policies[name] for name in ids]

    def _ordered(self, endpoints: list[Endpoint]) -> tuple[Endpoint, ...]:
        if len(endpoints) == 1:
            return tuple(endpoints)
        # Weighted sampling without replacement (Efraimidis and Spirakis, 2006): the largest draw^(1/weight) comes first.
        keyed = [(endpoint.order, -(self._draw() ** (1 / endpoint.weight)), endpoint) for endpoint in endpoints]
        return tuple(endpoint for *_, endpoint in sorted(keyed, key=lambda item: item[:2]))

    def _hint(self) -> str:
        if self.models:
            return f"Served: {', '.join(sorted(self.models)[:20])}."
        return f"Ask for PROVIDER/MODEL; providers: {', '.join(sorted(self.upstreams))}."
