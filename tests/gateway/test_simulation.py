"""Calls played at random: whatever upstream and client do, one end, one record, nothing left behind.

A seed that fails is played again with STROM_SIMULATION_SEEDS=1234 (one seed) or =0:5000 (a range), for long runs too. The
number of steps played is printed at the end of such a run.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.gateway.simulated import Simulation
from tests.gateway.simulated_crowd import Crowd
from tests.gateway.simulation_checks import check, check_rest

FIXED = 400
FIXED_CROWDS = 100
FIXED_LEAVING = 10
BATCH = 50
MOST_LEFT = 150
"""Calls with more steps are left at so many of them, the first ones and the last ones."""


def seeds(default: int) -> range:
    """The fixed set, or what the environment asks for."""
    asked = os.environ.get("STROM_SIMULATION_SEEDS", "")
    first, _, last = asked.partition(":")
    if not first:
        return range(default)
    return range(int(first), int(last) if last else int(first) + 1)


ALL, CROWDS, LEAVING = seeds(FIXED), seeds(FIXED_CROWDS), seeds(FIXED_LEAVING)
"""Read when collected: tests see no STROM_* variable of this machine."""
IS_LONG = "STROM_SIMULATION_SEEDS" in os.environ


@pytest.fixture(scope="module")
def steps(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    counter: Counter[str] = Counter()
    yield counter
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    if capture is not None and IS_LONG:
        with capture.global_and_fixture_disabled():
            print(f"\n{counter.total():,} steps: {dict(counter)}")


def run(batch: range, caplog: pytest.LogCaptureFixture, play: Callable[[int], str]) -> None:
    """`play` plays and checks a seed; it gives what it was, for whoever looks for the fault."""
    broken = []
    for seed in batch:
        caplog.clear()
        try:
            play(seed)
            assert not [r for r in caplog.records if r.levelno >= logging.WARNING], caplog.text
        except (AssertionError, LookupError, ValueError) as error:
            broken.append(f"seed {seed}: {type(error).__name__} {str(error)[:600]}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("batch", range(0, len(ALL), BATCH))
def test_whatever_happens_a_call_ends_once_and_well(
    batch: int, caplog: pytest.LogCaptureFixture, steps: Counter[str]
) -> None:
    def play(seed: int) -> str:
        played = Simulation(seed)
        played.play()
        steps["one call"] += played.steps
        return checked(played)

    run(ALL[batch : batch + BATCH], caplog, play)


@pytest.mark.parametrize("batch", range(0, len(LEAVING), 5))
def test_a_client_may_leave_at_every_step(batch: int, caplog: pytest.LogCaptureFixture, steps: Counter[str]) -> None:
    def play(seed: int) -> str:
        whole = Simulation(seed)
        whole.play()
        few = range(1, whole.steps + 1)
        for at in few if len(few) <= MOST_LEFT else [*few[: MOST_LEFT // 2], *few[-MOST_LEFT // 2 :]]:
            played = Simulation(seed)
            played.play(leaves_at=at)
            steps["leaving"] += played.steps
            checked(played)
        return ""

    run(LEAVING[batch : batch + 5], caplog, play)


@pytest.mark.parametrize("batch", range(0, len(CROWDS), BATCH))
def test_calls_at_once_get_and_give_back_their_own(
    batch: int, caplog: pytest.LogCaptureFixture, steps: Counter[str]
) -> None:
    def play(seed: int) -> str:
        crowd = Crowd(seed)
        try:
            crowd.play()
            crowd.check()
        except AssertionError as error:
            raise AssertionError(f"{error} ({crowd})") from None
        steps["several calls"] += crowd.steps
        return ""

    run(CROWDS[batch : batch + BATCH], caplog, play)


def checked(played: Simulation) -> str:
    try:
        check_rest(played.rig)
        trace_id = played.record.trace_id
        assert list(played.rig.records.begun) == ([trace_id] if played.sent else [])
        check(played)
    except AssertionError as error:
        raise AssertionError(f"{error} ({describe(played)})") from None
    return describe(played)


def describe(played: Simulation) -> str:
    parts = ", ".join(f"{played.protocol_of(n)} {part.ending} {part.status}" for n, part in enumerate(played.parts))
    return f"{played.front} {'stream' if played.streams else 'whole'} over {parts}"
