"""No death of a process hides a call that a backend saw. More rounds: tools/crash_test.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.crashing import kill_gateway, kill_worker


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_every_call_that_was_seen_is_recorded(tmp_path: Path, after_s: float) -> None:
    outcome = kill_gateway(tmp_path, after_s)
    assert outcome.seen > 0
    assert outcome.missing == []
    assert outcome.unsettled == 0
    assert outcome.statuses.get("failed", 0) > 0  # calls were under way, and are marked


@pytest.mark.skipif(sys.platform != "linux", reason="looks for workers in /proc")
def test_a_worker_that_was_killed_is_replaced_and_its_calls_are_marked(tmp_path: Path) -> None:
    outcome = kill_worker(tmp_path, 0.4)
    assert outcome.seen > 0
    assert outcome.missing == []
    assert outcome.unsettled == 0


def test_with_postgresql_too(tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    outcome = kill_gateway(tmp_path, 0.4, postgres_database)
    assert outcome.seen > 0
    assert outcome.missing == []
    assert outcome.unsettled == 0
