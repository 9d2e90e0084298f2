"""Two replicas of two workers behind nginx, over a real PostgreSQL and Redis, in network namespaces of their own."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.e2e.killing import fill_narrow_key, narrow_status, round_of, services
from tests.e2e.processes import upstream
from tests.e2e.replicas import hosts, stage
from tests.patience import wait_until
from tests.services import RedisServer

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found through /proc")


def test_a_replica_killed_under_load(postgres_database: str, redis_server: RedisServer, tmp_path: Path) -> None:
    with upstream() as backend, stage(tmp_path, services(backend, postgres_database, redis_server.url)) as scene:
        verdict = round_of(scene, scene.a, backend, postgres_database, 4)
        assert verdict.cut
        assert verdict.marked
        holders: list[threading.Thread] = []
        begun = fill_narrow_key(scene, holders, 10)
        assert begun.pop("429") == 2
        assert sum(begun.values()) == 8
        assert min(begun.values()) > 0, begun  # both have some
        assert narrow_status(scene) == 429
        scene.b.kill()
        wait_until(lambda: narrow_status(scene) == 200)  # slots of the dead come back after lease_s


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are root's")
def test_hosts_are_apart_where_that_is_permitted() -> None:
    with hosts(2) as machines:
        assert len({host.address for host in machines}) == 2
        assert len({host.is_apart for host in machines}) == 1
