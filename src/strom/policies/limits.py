"""Which limits bind a call, what it reserves of them, what it is charged in the end, and in what words it is refused.

A call is bound by its key's limits, its model's, and those of all calls together; the limiter (strom.shared) decides over all
of them at once. Tokens are reserved by estimate: the prompt, and the output that the request allows or the configured guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase

import msgspec

from strom.core.access import NO_LIMITS, Budget, KeySettings, Limits
from strom.core.errors import LimitsUnavailable, RateLimited, StromError
from strom.core.record import CallRecord
from strom.shared.limiter import MONEY, NOTHING, Charge, Demand, Refusal, Scope
from strom.upstreams.pricing import TRILLION

ASSUMED_OUTPUT_TOKENS = 1024
NEVER_S = 60.0
"""`retry-after` where no wait helps: clients want a number."""
_MAX_KNOWN = 10_000
_ALL = "all"
_EXACT_BELOW = 1000
"""Amounts of so many digits before the point and twelve behind it come back from a float as they were."""


MOST = 100_000_000_000
"""Nobody reaches more, and up to here buckets are counted exactly everywhere: in 64 bits, and in Redis' doubles."""
_MOST_MONEY = 1 << 53
"""Of one call, nine million of a currency: what a broken backend's counts would cost, many times over, still fits."""


class _Bound(msgspec.Struct, frozen=True):
    """What binds a key's calls of a model."""

    key: KeySettings | None
    scopes: tuple[Scope, ...]
    costs: bool


class LimitBook:
    """The limits of a configuration. `models`: limits by model name, and the aliases (patterns) of each in their order."""

    def __init__(
        self,
        of_all: Limits = NO_LIMITS,
        models: Iterable[tuple[str, tuple[str, ...], Limits]] = (),
        assumed_output_tokens: int = ASSUMED_OUTPUT_TOKENS,
    ) -> None:
        self._assumed_output_tokens = assumed_output_tokens
        self._of_all = scope_of(_ALL, of_all)
        named = list(models)
        self._models: Mapping[str, Scope | None] = {
            name: scope_of(f"model:{name}", limits) for name, _, limits in named
        }
        self._aliases = [(alias, name) for name, aliases, _ in named for alias in aliases]
        self._of_keys: dict[str, tuple[KeySettings, Scope | None]] = {}
        self._known: dict[tuple[str, str], _Bound] = {}

    def demand(self, key: KeySettings | None, model: str, prompt: int, output: int | None) -> Demand | None:
        """None: nothing limits this call. `output`: what the request allows, None where it does not say."""
        place = (key.name if key is not None else "", model)
        known = self._known.get(place)
        if known is None or known.key is not key:
            known = self._remember(place, key, model)
        if not known.scopes:
            return None
        tokens = prompt + (self._assumed_output_tokens if output is None else output)
        return Demand(known.scopes, tokens, prompt, known.costs)

    def budgets(self, keys: Iterable[KeySettings]) -> list[Scope]:
        """Every scope that has a budget: of these keys, the models, and all calls."""
        scopes = [self._of_all, *self._models.values(), *(self.of_key(key) for key in keys)]
        return [scope for scope in scopes if scope is not None and scope.budget]

    def scopes(self, keys: Iterable[KeySettings]) -> list[Scope]:
        """Every scope there is, all calls first."""
        scopes = [self._of_all, *self._models.values(), *(self.of_key(key) for key in keys)]
        return [scope for scope in scopes if scope is not None]

    def of_key(self, key: KeySettings) -> Scope | None:
        known = self._of_keys.get(key.name)
        if known is None or known[0] is not key:
            if len(self._of_keys) >= _MAX_KNOWN:
                self._of_keys.clear()
            known = self._of_keys[key.name] = (key, scope_of(f"key:{key.name}", key.limits))
        return known[1]

    def _remember(self, place: tuple[str, str], key: KeySettings | None, model: str) -> _Bound:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        found = (self.of_key(key) if key is not None else None, self._of_model(model), self._of_all)
        scopes = tuple([scope for scope in found if scope is not None])
        bound = self._known[place] = _Bound(key, scopes, any(scope.budget for scope in scopes))
        return bound

    def _of_model(self, asked: str) -> Scope | None:
        name = self.model_named(asked)
        return self._models[name] if name is not None else None

    def model_named(self, asked: str) -> str | None:
        """The configured model that a client means, looked up as the router does it."""
        for name in (asked, asked.removesuffix(":latest")):
            if name in self._models:
                return name
            for alias, owner in self._aliases:
                if fnmatchcase(name, alias):
                    return owner
        return None


def scope_of(name: str, limits: Limits) -> Scope | None:
    if limits == NO_LIMITS:
        return None
    budget = limits.budget
    return Scope(
        name,
        min(limits.requests_per_minute or 0, MOST),
        min(limits.tokens_per_minute or 0, MOST),
        min(limits.concurrent or 0, MOST),
        money_of(budget) if budget is not None else 0,
        budget.per if budget is not None else "month",
        budget.currency if budget is not None else "",
    )


def money_of(budget: Budget) -> int:
    return to_money(budget.amount)


def to_money(amount: object) -> int:
    """An amount of a currency, exactly as it is written, in units of which MONEY make one."""
    return int((Decimal(str(amount)) * MONEY).to_integral_value())


def _cost_money(amount: float) -> int:
    """The same for what a call cost, which is a number of trillionths (gateway/accounts.py), in a tenth of the time."""
    if amount >= _EXACT_BELOW:
        return to_money(amount)
    money, rest = divmod(round(amount * TRILLION), TRILLION // MONEY)
    half = TRILLION // MONEY // 2
    return money + (rest > half or (rest == half and money % 2))


def charge_for(record: CallRecord, estimate: int, *, costs: bool = True) -> Charge:
    """What a settled call has really used. `estimate`: prompt tokens, where nobody counted them."""
    usage = record.usage
    cost = record.cost_estimate if costs else None
    given, produced = usage.input_tokens, usage.output_tokens
    if record.status in ("started", "rejected") or (
        record.status == "failed" and not record.deltas and record.usage_source != "reported"
    ):
        tokens = 0  # no model has worked for it, as far as anybody knows
    else:
        tokens = (estimate if given is None else given) + (record.deltas if produced is None else produced)
    if cost is not None:
        return Charge(min(tokens, MOST), min(_cost_money(cost.amount), _MOST_MONEY), cost.currency)
    return Charge(min(tokens, MOST)) if tokens else NOTHING


# --- words -----------------------------------------------------------------------------------------


def refusal_error(refusal: Refusal) -> StromError:
    """What the caller is told: 429, or 503 where nobody can tell whether the limits would allow it."""
    scope, wait_ms = refusal.scope, refusal.wait_ms
    owner = _owner(scope)
    retry_after_s = NEVER_S if wait_ms is None else wait_ms / 1000
    match refusal.kind:
        case "requests":
            words = f"The limit of {scope.requests} requests per minute {owner} is reached. {_again(retry_after_s)}"
        case "tokens" if wait_ms is None:
            words = f"The prompt is larger than the limit of {scope.tokens} tokens per minute {owner}: shorten it."
        case "tokens":
            words = f"The limit of {scope.tokens} tokens per minute {owner} is reached. {_again(retry_after_s)}"
        case "concurrent":
            words = f"The limit of {scope.concurrent} calls at once {owner} is reached. {_again(retry_after_s)}"
        case "budget":
            amount = f"{Decimal(scope.budget) / MONEY:f} {scope.currency}"
            words = f"The budget of {amount} per {scope.per} {owner} is used up until the {scope.per} ends (UTC)."
            return RateLimited(words, code="insufficient_quota", retry_after_s=retry_after_s)
        case "unavailable":
            words = "The limits of this call cannot be checked at the moment: try again in a second."
            return LimitsUnavailable(words, retry_after_s=retry_after_s)
    return RateLimited(words, retry_after_s=retry_after_s)


def helps_waiting(refusal: Refusal) -> bool:
    """Whether the same request may be admitted soon: not one that never fits, nor one whose budget is used up."""
    return refusal.wait_ms is not None and refusal.kind != "budget"


def _again(seconds: float) -> str:
    """Codex reads the number out of these words. Source: protocol-facts.md section 2.5."""
    return f"Please try again in {math.ceil(seconds * 1000) / 1000:g}s."


def _owner(scope: Scope) -> str:
    kind, _, name = scope.id.partition(":")
    match kind:
        case "key":
            return "of this key"
        case "model":
            return f"of the model {name!r}"
        case _:
            return "of this gateway"
