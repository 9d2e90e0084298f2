"""From a model name to the endpoints that may serve it.

A name is looked up in this order: a configured model's name, an alias pattern, `provider/model`, and, where nothing is
configured and there is one provider, any name at all. After a model's own endpoints come those of its `fallback_models`. What
the key or a policy forbids is never part of a plan. In which order endpoints are tried: choosing.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import groupby

import msgspec

from strom.core.access import KeySettings, PolicySettings
from strom.core.errors import BadRequest, ModelNotFound, NotFound, PermissionDenied
from strom.gateway.choosing import Chooser, Group, make_group
from strom.gateway.destination import ANYWHERE, Destination
from strom.gateway.health import HealthView, NoBoard
from strom.gateway.plan import Endpoint, Plan
from strom.policies.sovereignty import all_allow, binding_name, objections
from strom.upstreams.settings import Affinity, ModelSettings, Strategy
from strom.upstreams.upstream import Upstream

MAX_MODEL_NAME = 512
"""Names of local models can be paths; what is longer is no name, and would stand in records and error texts."""

MAX_KNOWN_ROUTES = 4096
SHOWN = 20
"""Names in a hint, at most."""


class Model(msgspec.Struct, frozen=True):
    name: str
    aliases: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    continuation: bool = False
    strategy: Strategy = "weighted"
    affinity: Affinity = "off"
    retries: int = 0
    fallback_models: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """An endpoint that might serve a model, and what forbids it; nothing where `objections` is empty."""

    endpoint: Endpoint
    model: str
    """"" where no models are configured."""
    fallback: bool
    objections: list[str]


class Route(msgspec.Struct, frozen=True):
    """All that one question leads to. `plan` is final where there is nothing to choose."""

    plan: Plan
    groups: tuple[Group, ...]


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
        *,
        health: HealthView | None = None,
    ) -> None:
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.models = {model.name: self._model(model) for model in models}
        self.policies = {policy.id: policy for policy in policies}
        self._patterns = [(alias, model) for model in self.models.values() for alias in model.aliases]
        self._chooser = Chooser(health or NoBoard(), draw)
        self._routes: dict[tuple[object, ...], Route] = {}

    # -- for calls --

    def plan(
        self, model: str, key: KeySettings | None, wanted_policy: str | None, destination: Destination = ANYWHERE
    ) -> Plan:
        """`destination.endpoint`: whether the caller may name one is decided before. Raises ModelNotFound, PermissionDenied,
        BadRequest, NotFound."""
        if key is None:
            route = self._route((model, wanted_policy), model, None, wanted_policy)
        else:  # by what the key may do: a managed key keeps its name when that changes
            route = self._route((model, wanted_policy, key.policy, key.models), model, key, wanted_policy)
        if destination.endpoint is not None:
            return self._pinned(route.plan, model, destination.endpoint)
        if len(route.plan.endpoints) == 1:
            return route.plan
        endpoints = self._chooser.arrange(route.groups, destination, key.name if key is not None else "")
        return msgspec.structs.replace(route.plan, endpoints=endpoints)

    def policy_name(self, key: KeySettings | None, wanted_policy: str | None) -> str | None:
        """What records call the policies that bind a call; None also where one of them is unknown."""
        if wanted_policy is None and (key is None or key.policy is None):
            return None
        ids = _policy_ids(key, wanted_policy)
        return (
            binding_name([self.policies[name] for name in ids]) if all(name in self.policies for name in ids) else None
        )

    # -- for lists and explanations --

    def plain_aliases(self) -> list[tuple[str, Model]]:
        """Aliases that are names, not patterns."""
        return [(alias, model) for alias, model in self._patterns if not set(alias) & set("*?[")]

    def endpoints(self) -> list[tuple[str | None, Endpoint]]:
        """All of them with the name of their model, or the providers where no models are configured."""
        configured = [(model.name, endpoint) for model in self.models.values() for endpoint in model.endpoints]
        return [*configured] or [(None, Endpoint(each.name, each, "")) for each in self.upstreams.values()]

    def open_upstreams(self, key: KeySettings | None, wanted_policy: str | None) -> list[Upstream]:
        """Those that the policies let this caller reach. Raises BadRequest."""
        policies = self._policies(key, wanted_policy)
        return [upstream for upstream in self.upstreams.values() if all_allow(policies, upstream)]

    def survey(self, model: str, key: KeySettings | None, wanted_policy: str | None) -> list[Candidate]:
        """Every endpoint that might serve the model, with what forbids it. Raises ModelNotFound, BadRequest."""
        own, known = self._look_up(model, key)
        policies = self._policies(key, wanted_policy)
        own_bar = _scope_bar(key, (model, known))
        found = [self._candidate(endpoint, own, own_bar, policies) for endpoint in own.endpoints]
        for name in own.fallback_models:
            other, bar = self.models[name], _scope_bar(key, (name,))
            found += [
                msgspec.structs.replace(self._candidate(each, other, bar, policies), fallback=True)
                for each in other.endpoints
            ]
        return found

    # -- inside --

    def _route(
        self, question: tuple[object, ...], model: str, key: KeySettings | None, wanted_policy: str | None
    ) -> Route:
        route = self._routes.get(question)
        if route is None:
            route = self._work_out(model, key, wanted_policy)
            if len(self._routes) < MAX_KNOWN_ROUTES:
                self._routes[question] = route
        return route

    def _work_out(self, name: str, key: KeySettings | None, wanted_policy: str | None) -> Route:
        model, known = self._look_up(name, key)
        if _scope_bar(key, (name, known)):
            raise PermissionDenied(f"This key may not use the model {name!r}.")
        policies = tuple(self._policies(key, wanted_policy))
        allowed = [each for each in self.survey(name, key, wanted_policy) if not each.objections]
        if not any(not each.fallback for each in allowed):
            names = ", ".join(policy.id for policy in policies)
            raise PermissionDenied(
                f"No endpoint of the model {name!r} satisfies the policy {names}.", code="policy_refused"
            )
        groups = tuple(
            group
            for _, tier in groupby(allowed, key=lambda each: (each.fallback, each.model))
            for group in self._groups(list(tier), model)
        )
        endpoints = tuple(endpoint for group in groups for endpoint in group.endpoints)
        plan = Plan(
            endpoints, name, binding_name(policies), model.continuation, policies=policies, retries=model.retries
        )
        return Route(plan, groups)

    def _groups(self, tier: list[Candidate], own: Model) -> list[Group]:
        """One for each order among the endpoints of one model."""
        model = self.models.get(tier[0].model, own)
        endpoints = sorted((each.endpoint for each in tier), key=lambda endpoint: endpoint.order)
        return [
            make_group(tuple(found), model.strategy, model.affinity)
            for _, found in groupby(endpoints, key=lambda endpoint: endpoint.order)
        ]

    def _pinned(self, plan: Plan, model: str, wanted: str) -> Plan:
        """Only the one that is named; the policies bind as ever."""
        found = next((endpoint for endpoint in plan.endpoints if endpoint.id == wanted), None)
        if found is not None:
            return msgspec.structs.replace(plan, endpoints=(found,), continuation=False)
        if any(endpoint.id == wanted for endpoint in self._reachable(model)):
            raise PermissionDenied(
                f"The endpoint {wanted!r} may not serve this call: {plan.policy_id or 'its key'} forbids it.",
                code="policy_refused",
            )
        raise NotFound(f"The model {model!r} has no endpoint {wanted!r}.", code="endpoint_not_found")

    def _reachable(self, name: str) -> list[Endpoint]:
        model, _ = self._look_up(name)
        return [*model.endpoints, *(each for other in model.fallback_models for each in self.models[other].endpoints)]

    def _candidate(
        self, endpoint: Endpoint, model: Model, bar: list[str], policies: Sequence[PolicySettings]
    ) -> Candidate:
        reasons = [reason for policy in policies for reason in objections(policy, endpoint.upstream)]
        return Candidate(endpoint, model.name, fallback=False, objections=[*bar, *reasons])

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
                entry.max_concurrent,
                entry.queue,
                entry.queue_timeout_s,
            )
            for entry in settings.endpoints
        )
        return Model(
            settings.name,
            settings.aliases,
            endpoints,
            settings.continuation,
            settings.strategy,
            settings.affinity,
            settings.retries,
            settings.fallback_models,
        )

    def _look_up(self, name: str, key: KeySettings | None = None) -> tuple[Model, str]:
        """The model, and the name it was found by. Raises BadRequest, ModelNotFound, with a hint for this key alone."""
        if not name:
            raise BadRequest("The request names no model.", param="model")
        if len(name) > MAX_MODEL_NAME:
            raise BadRequest(f"The model name is longer than {MAX_MODEL_NAME} characters.", param="model")
        for known in (name, name.removesuffix(":latest")):  # Ollama's clients say :latest of their own accord
            model = self._find(known)
            if model is not None and model.endpoints:
                return model, known
        raise ModelNotFound(f"The model {name!r} is not served here. {self._hint(key)}".rstrip(), param="model")

    def _find(self, name: str) -> Model | None:
        if name in self.models:
            return self.models[name]
        for pattern, model in self._patterns:
            if fnmatchcase(name, pattern):
                return model
        if self.models:
            return None
        if len(self.upstreams) == 1:
            (upstream,) = self.upstreams.values()
            own = name.removeprefix(upstream.name + "/")
            return Model("", (), (Endpoint(upstream.name, upstream, own if own != name else ""),))
        provider, _, own = name.partition("/")
        if own and provider in self.upstreams:
            return Model("", (), (Endpoint(provider, self.upstreams[provider], own),))
        return None

    def _policies(self, key: KeySettings | None, wanted: str | None) -> list[PolicySettings]:
        """The key's policy and the request's; both bind."""
        ids = _policy_ids(key, wanted)
        missing = [name for name in ids if name not in self.policies]
        if missing and missing[0] != wanted:
            raise PermissionDenied(
                f"This key is bound to the policy {missing[0][:100]!r}, which this gateway does not have (any more): "
                "its operator must configure it, or change the key.",
                code="policy_refused",
            )
        if missing:
            raise BadRequest(
                f"There is no policy {missing[0][:100]!r}. Known: {', '.join(sorted(self.policies)) or 'none'}.",
                code="policy_not_found",
            )
        return [self.policies[name] for name in ids]

    def _hint(self, key: KeySettings | None) -> str:
        """What else may be asked for: nothing that the key may not."""
        if self.models:
            names = sorted(name for name in self.models if key is None or may_use(key, name))
            return f"Served: {', '.join(names[:SHOWN])}." if names else ""
        return f"Ask for PROVIDER/MODEL; providers: {', '.join(sorted(self.upstreams))}."


def _policy_ids(key: KeySettings | None, wanted: str | None) -> list[str]:
    ids = [key.policy] if key is not None and key.policy else []
    return [*ids, wanted] if wanted is not None and wanted not in ids else ids


def _scope_bar(key: KeySettings | None, names: tuple[str, ...]) -> list[str]:
    if key is None or any(may_use(key, name) for name in names):
        return []
    return [f"the key {key.name!r} may not use the model {names[0]!r}"]
