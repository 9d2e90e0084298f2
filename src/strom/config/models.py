"""Models: references to providers, names and ids that may stand only once, shell patterns."""

from __future__ import annotations

from collections.abc import Iterable

from strom.config.schema import EndpointTable, ModelTable
from strom.config.tables import Problems, suggestion
from strom.upstreams.settings import EndpointSettings, ModelSettings


class Names:
    """Names of one kind that may be used once; the second use is an error that tells where the first one is."""

    def __init__(self, problems: Problems) -> None:
        self._places: dict[str, str] = {}
        self._problems = problems

    def claim(self, name: str, path: str) -> None:
        if not name:
            return
        first = self._places.setdefault(name, path)
        if first != path:
            self._problems.add(path, f"{name!r} is already used at {first}")


def resolve_models(
    tables: tuple[ModelTable, ...], providers: Iterable[str], problems: Problems
) -> tuple[ModelSettings, ...]:
    known = tuple(providers)
    names, ids = Names(problems), Names(problems)
    found: list[ModelSettings] = []
    for at, table in enumerate(tables):
        path = f"models[{at}]"
        names.claim(table.name, f"{path}.name")
        for place, alias in enumerate(table.aliases):
            names.claim(alias, f"{path}.aliases[{place}]")
        check_patterns(table.aliases, f"{path}.aliases", problems)
        if not table.endpoints:
            problems.add(f"{path}.endpoints", "expected at least one [[models.endpoints]]")
        endpoints: list[EndpointSettings] = []
        for place, row in enumerate(table.endpoints):
            where = f"{path}.endpoints[{place}]"
            if row.provider and row.provider not in known:
                hint = suggestion(row.provider, known)
                problems.add(f"{where}.provider", f"there is no provider {row.provider!r}{hint}")
            _check_queue(row, where, problems)
            _check_prices(row, where, problems)
            endpoint = _endpoint(row, table.name)
            ids.claim(endpoint.id, f"{where}.id")
            endpoints.append(endpoint)
        found.append(
            ModelSettings(
                table.name,
                tuple(endpoints),
                table.aliases,
                table.limits,
                table.timeouts,
                table.continuation,
                strategy=table.strategy,
                affinity=table.affinity,
                retries=table.retries,
                fallback_models=table.fallback_models,
            )
        )
    _check_fallbacks(tables, problems)
    return tuple(found)


def _check_fallbacks(tables: tuple[ModelTable, ...], problems: Problems) -> None:
    known = [table.name for table in tables]
    for at, table in enumerate(tables):
        for place, name in enumerate(table.fallback_models):
            path = f"models[{at}].fallback_models[{place}]"
            if name == table.name or name in table.fallback_models[:place]:
                problems.add(path, f"{name!r} is asked anyway")
            elif name not in known:
                problems.add(path, f"there is no model {name!r}{suggestion(name, known)}")


def _check_queue(row: EndpointTable, path: str, problems: Problems) -> None:
    if row.queue and row.max_concurrent is None:
        problems.add(f"{path}.queue", "nobody waits without a max_concurrent")


def _check_prices(row: EndpointTable, path: str, problems: Problems) -> None:
    """A price that holds on no day would leave calls without a cost, and nobody would see why."""
    several = isinstance(row.price, tuple)
    prices = row.price if isinstance(row.price, tuple) else (row.price,) if row.price is not None else ()
    for at, price in enumerate(prices):
        if price.valid_from is not None and price.valid_until is not None and price.valid_until < price.valid_from:
            where = f"{path}.price[{at}]" if several else f"{path}.price"
            problems.add(f"{where}.valid_until", "is before valid_from: the price would never hold")


def check_patterns(patterns: tuple[str, ...], path: str, problems: Problems) -> None:
    """`fnmatch` takes any text; these are the ones that cannot have been meant."""
    for at, pattern in enumerate(patterns):
        if not pattern.strip():
            problems.add(f"{path}[{at}]", "an empty pattern matches nothing")
        elif not pattern.isprintable() or " " in pattern:
            problems.add(f"{path}[{at}]", "a pattern holds no spaces and no control characters")
        elif "[" in pattern and "]" not in pattern[pattern.index("[") + 2 :]:
            problems.add(f"{path}[{at}]", f"the bracket in {pattern!r} is not closed")


def _endpoint(row: EndpointTable, model: str) -> EndpointSettings:
    upstream_model = row.model or model
    return EndpointSettings(
        id=row.id or f"{row.provider}/{upstream_model}" if row.provider else row.id or "",
        provider=row.provider,
        model=upstream_model,
        order=row.order,
        weight=row.weight,
        context_window=row.context_window,
        price=row.price,
        max_concurrent=row.max_concurrent,
        queue=row.queue,
        queue_timeout_s=row.queue_timeout_s,
    )
