"""Kills a gateway under load, again and again, and looks for calls that its records do not know.  crash_test.py [ROUNDS]

ROUNDS (default 50) gateways are started on a store of their own, loaded by streaming clients, and killed (SIGKILL) at a random
moment; every fifth round kills one of two workers instead. Every call that the upstream saw must be in the records, and none
may still count as running. Bounded: about 6 s a round, at most 20 minutes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.e2e.crashing import kill_gateway, kill_worker

LONGEST_S = 1200.0


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    began = time.monotonic()
    seen = missing = unsettled = marked = done = 0
    for number in range(rounds):
        if time.monotonic() - began > LONGEST_S:
            print(f"stopped after {done} rounds: out of time")
            break
        after_s = random.uniform(0.05, 1.0)  # noqa: S311 - a moment, no secret
        with tempfile.TemporaryDirectory() as folder:
            kill = kill_worker if number % 5 == 4 else kill_gateway
            outcome = kill(Path(folder), after_s)
        done += 1
        seen, missing = seen + outcome.seen, missing + len(outcome.missing)
        unsettled, marked = unsettled + outcome.unsettled, marked + outcome.statuses.get("failed", 0)
        if outcome.missing or outcome.unsettled:
            print(f"round {number}: missing {outcome.missing}, unsettled {outcome.unsettled}")
    print(
        f"{done} kills, {seen} calls seen upstream, {missing} not in the records, {unsettled} unsettled, {marked} marked"
    )
    return 1 if missing or unsettled or done < rounds else 0


if __name__ == "__main__":
    sys.exit(main())
