"""What every test may use, and the rule that continuous integration skips nothing.

A test that cannot run (recordings or model weights are missing) is skipped with its reason on a developer's machine. With
CI set, one skipped test fails the whole session: what was not run was not shown.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.services import postgres_database, postgres_url, redis_server, redis_url

__all__ = ["postgres_database", "postgres_url", "redis_server", "redis_url"]


# No time limits: a shared machine may stall at any moment, and work has tests of its own.
settings.register_profile("daily", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("daily"), max_examples=1000)
settings.load_profile(os.environ.get("STROM_PROPERTIES", "daily"))
"""STROM_PROPERTIES=thorough tries properties longer. A test that names its own number keeps it."""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def free_port() -> int:
    """A loopback port that nothing listens on (anymore)."""
    return _free_port()


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """So many different free loopback ports."""

    def take(count: int) -> list[int]:
        probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        ports: list[int] = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        return ports

    return take


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy or STROM_* setting of this machine takes part, but for those that name folders."""
    kept = {"STROM_SHARED", "STROM_CACHE"}
    for name in list(os.environ):
        if (name.startswith("STROM_") and name not in kept) or name.lower() in {
            "http_proxy",
            "https_proxy",
            "all_proxy",
        }:
            monkeypatch.delenv(name)


def pytest_collection_finish() -> None:
    """What was imported and collected by now stays: collections of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI set, a skipped test is a failed run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None or session.exitstatus != pytest.ExitCode.OK:
        return
    if skipped := reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"\n{len(skipped)} skipped: with CI set nothing may be skipped", red=True)
        for report in skipped:
            reporter.write_line(f"  {report.nodeid}: {report.longrepr[-1] if report.longrepr else ''}")
