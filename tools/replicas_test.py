"""Kills one of two replicas behind nginx under load, again and again.  replicas_test.py [ROUNDS [SECONDS]]

ROUNDS (default 6) of SECONDS (default 10) each: streams and counted calls through nginx to two replicas of two workers, in
network namespaces of their own where this machine permits that, over a PostgreSQL and a Redis of the test's own; in the middle
one replica, in turn, is killed (SIGKILL, all its processes) and started again at the end. What must hold stands in
tests/e2e/killing.py; the first thing that does not ends the run. Needs nginx, PostgreSQL, Redis, Linux; at most 15 minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.e2e.killing import BUCKET, Verdict, round_of, services
from tests.e2e.processes import upstream
from tests.e2e.replicas import stage
from tests.services import PostgresServer, RedisServer

LONGEST_S = 900.0


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    began = time.monotonic()
    postgres, redis = PostgresServer(), RedisServer()
    try:
        postgres.start()
        redis.start()
        with tempfile.TemporaryDirectory() as folder:
            verdicts = _play(Path(folder), (postgres.url("strom"), redis.url), rounds, seconds)
    finally:
        postgres.stop()
        redis.stop()
    took = time.monotonic() - began
    _report(verdicts, took)
    return 0 if len(verdicts) == rounds else 1


def _play(folder: Path, urls: tuple[str, str], rounds: int, seconds: float) -> list[Verdict]:
    began, verdicts = time.monotonic(), []
    with upstream() as backend, stage(folder, services(backend, *urls)) as scene:
        apart = "in network namespaces" if scene.a.host.is_apart else "on loopback addresses: no namespaces here"
        print(f"two replicas of two workers, {apart}")
        first = time.monotonic()
        for number in range(rounds):
            if time.monotonic() - began > LONGEST_S:
                print(f"stopped after {number} rounds: out of time")
                break
            victim = (scene.a, scene.b)[number % 2]
            verdict = round_of(scene, victim, backend, urls[0], seconds)
            verdicts.append(verdict)
            print(f"round {number + 1}: {verdict}", flush=True)
        admitted, allowed = sum(v.admitted for v in verdicts), BUCKET + int(time.monotonic() - first) * BUCKET // 60 + 1
        print(f"counted calls admitted over all rounds: {admitted}, at most {allowed}")
        assert admitted <= allowed
    return verdicts


def _report(verdicts: list[Verdict], took: float) -> None:
    totals = {name: sum(getattr(v, name) for v in verdicts) for name in ("calls", "whole", "cut", "survived", "after")}
    last = verdicts[-1] if verdicts else None
    recorded = f"{last.seen} calls seen upstream, all recorded, {last.marked} marked as lost" if last else "nothing"
    print(f"{len(verdicts)} kills in {took:.0f} s: {totals}; {recorded}")


if __name__ == "__main__":
    sys.exit(main())
