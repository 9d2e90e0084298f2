"""What other parts of the gateway know at any time, as readings for the sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from strom.gateway.board import Board
from strom.gateway.gateway import Gateway
from strom.gateway.health import Circuit
from strom.gateway.plan import Endpoint
from strom.gateway.routing import Router
from strom.telemetry import families as f
from strom.telemetry.sampler import Reading, Source

CIRCUITS: tuple[Circuit, ...] = get_args(Circuit)


def lost_records(count: Callable[[], int]) -> Source:
    return lambda: [(f.RECORDS_LOST, (), float(count()))]


def client_connections(count: Callable[[], int]) -> Source:
    return lambda: [(f.CONNECTIONS, (), float(count()))]


def resumable_streams(sizes: Callable[[], tuple[int, int]]) -> Source:
    """`sizes`: how many are kept, and their bytes."""

    def readings() -> Iterable[Reading]:
        count, size_bytes = sizes()
        yield f.RESUMABLE, (), float(count)
        yield f.RESUMABLE_BYTES, (), float(size_bytes)

    return readings


def upstream_connections(stats: Callable[[], Mapping[str, int]]) -> Source:
    """`stats`: of the upstream client."""

    def readings() -> Iterable[Reading]:
        found = stats()
        for state in ("idle", "connecting"):
            yield f.UPSTREAM_CONNECTIONS, (state,), float(found[state])
        for way in ("opened", "reused"):
            yield f.UPSTREAM_REQUESTS, (way,), float(found[way])

    return readings


def limit_decisions(gateway: Gateway) -> Source:
    def readings() -> Iterable[Reading]:
        for (decision, scope), count in gateway.desk.decisions.items():
            yield f.LIMIT_DECISIONS, (decision, scope), float(count)

    return readings


def endpoint_health(gateway: Gateway) -> Source:
    """Of the endpoints that are configured now."""

    def readings() -> Iterable[Reading]:
        board, queues = gateway.services.health, gateway.services.queues
        for endpoint in configured_endpoints(gateway.state.router):
            labels = (endpoint.id,)
            yield f.ENDPOINT_WAITING, labels, float(queues.waiting(endpoint))
            if isinstance(board, Board):
                condition = board.condition(endpoint)
                yield f.ENDPOINT_IN_FLIGHT, labels, float(condition.in_flight)
                yield f.ENDPOINT_FAULTS, labels, float(condition.faults)
                for circuit in CIRCUITS:
                    yield f.ENDPOINT_CIRCUIT, (endpoint.id, circuit), float(circuit == condition.circuit)

    return readings


def configured_endpoints(router: Router) -> Iterable[Endpoint]:
    """Each once, under its id; where no models are configured, the providers."""
    if not router.models:
        return [Endpoint(name, upstream, "") for name, upstream in router.upstreams.items()]
    return {endpoint.id: endpoint for model in router.models.values() for endpoint in model.endpoints}.values()
