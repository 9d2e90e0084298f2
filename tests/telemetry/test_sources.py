"""What the sampler hears from the rest of the gateway."""

from __future__ import annotations

from strom.core.access import Limits
from strom.core.errors import Overloaded
from strom.gateway.board import Board
from strom.gateway.routing import Router
from strom.policies.limits import scope_of
from strom.shared.limiter import Demand
from strom.telemetry import families as f
from strom.telemetry.sampler import Source
from strom.telemetry.sources import (
    CIRCUITS,
    client_connections,
    configured_endpoints,
    endpoint_health,
    limit_decisions,
    lost_records,
    resumable_streams,
    upstream_connections,
)
from strom.transport.client import NativeClient
from tests.gateway.rig import Rig


def read(source: Source) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(family.shown_name, labels): value for family, labels, value in source()}


def test_simple_counts() -> None:
    assert read(lost_records(lambda: 3)) == {("strom_records_lost_total", ()): 3}
    assert read(client_connections(lambda: 4)) == {("strom_open_connections", ()): 4}
    assert read(resumable_streams(lambda: (2, 500))) == {
        ("strom_resumable_streams", ()): 2,
        ("strom_resumable_buffer_bytes", ()): 500,
    }


def test_connections_to_backends_are_what_the_client_says() -> None:
    found = read(upstream_connections(NativeClient().stats))
    assert set(found.values()) == {0.0}
    assert ("strom_upstream_connections", ("idle",)) in found
    assert ("strom_upstream_connection_uses_total", ("reused",)) in found


def test_health_of_each_endpoint() -> None:
    rig = Rig(endpoints=2)
    board = rig.services.health = Board(rig.clock.time, lambda: 0.5)
    endpoint = next(iter(configured_endpoints(rig.gateway.state.router)))
    source = endpoint_health(rig.gateway)
    assert read(source)["strom_endpoint_circuit", ("e1", "closed")] == 1
    for _ in range(50):
        board.began(endpoint)
        board.ended(endpoint, Overloaded("Full."), None)
    board.began(endpoint)
    found = read(source)
    assert found["strom_endpoint_in_flight", ("e1",)] == 1
    assert sum(found["strom_endpoint_circuit", ("e1", state)] for state in CIRCUITS) == 1
    assert found["strom_endpoint_circuit", ("e2", "closed")] == 1
    assert found["strom_endpoint_waiting", ("e1",)] == 0
    assert found["strom_endpoint_faults_total", ("e2",)] == 0


def test_providers_are_endpoints_where_no_models_are_configured() -> None:
    rig = Rig()
    router = Router(rig.gateway.state.router.upstreams.values(), (), ())
    assert [endpoint.id for endpoint in configured_endpoints(router)] == ["p1"]


def test_decisions_of_the_limiter() -> None:
    rig = Rig()
    limits = (scope_of("key:ci", Limits(requests_per_minute=2)),)
    told: list[object] = []
    for _ in range(5):
        rig.gateway.desk.reserve(Demand(tuple(scope for scope in limits if scope)), "openai-chat", told.append)
    found = read(limit_decisions(rig.gateway))
    assert len(told) == 5
    assert found == {
        (f.LIMIT_DECISIONS.shown_name, ("granted", "all")): 2,
        (f.LIMIT_DECISIONS.shown_name, ("requests", "key")): 3,
    }
