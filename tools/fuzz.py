"""Damages recorded answers at random and looks for promises that break.  fuzz.py [--minutes N] [--seed S] [--target T]…

Every input follows from the seed and its number: `--seed S --from N --count 1` makes one again. Findings are printed once per
kind and kept in `--keep FOLDER`, each as one JSON file that tests/fuzz/kept takes as a test. Exit 1 when there are any.
The recordings are needed: STROM_SHARED names the folder above them.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("src", "")]

from tests.fuzz.campaign import TARGETS, Campaign, Finding  # noqa: E402 - the path has to be set first

MOST_KEPT = 3
"""Inputs kept of each kind of finding."""


def main() -> int:
    options = _options()
    campaign = Campaign(options.seed, tuple(options.target or TARGETS))
    kinds: dict[str, int] = {}
    begun = time.monotonic()
    for finding in campaign.run(_numbers(options, begun)):
        kind = _kind(finding)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] == 1:
            print(f"{finding.number}: {kind}\n    {finding.what}", flush=True)
        if options.keep and kinds[kind] <= MOST_KEPT:
            options.keep.mkdir(parents=True, exist_ok=True)
            path = options.keep / f"{options.seed}-{finding.number}.json"
            path.write_bytes(msgspec.json.encode(finding))
    _report(campaign, kinds, time.monotonic() - begun)
    return 1 if kinds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N")
    parser.add_argument("--count", type=int)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    return parser.parse_args()


def _numbers(options: argparse.Namespace, begun: float) -> Iterator[int]:
    end = begun + options.minutes * 60
    for number in itertools.count(options.first):
        if time.monotonic() > end or (options.count is not None and number >= options.first + options.count):
            return
        yield number


def _kind(finding: Finding) -> str:
    """Findings of one cause look alike but for numbers and quotations."""
    what = re.sub(r"""(['"]).*?\1|\{.*\}|\d+""", "…", finding.what.partition("\n")[0])
    return f"{finding.input.target} {finding.input.protocol}: {what[:140]} {finding.what[-40:]}"


def _report(campaign: Campaign, kinds: dict[str, int], seconds: float) -> None:
    total = sum(campaign.counts.values())
    print(
        f"seed {campaign.seed}: {total} inputs, {campaign.size_bytes} bytes, {seconds:.0f} s, {sum(kinds.values())} findings"
    )
    for name, count in sorted(campaign.counts.items()):
        print(f"  {name}: {count}")
    for kind, count in kinds.items():
        print(f"  {count} × {kind}")


if __name__ == "__main__":
    sys.exit(main())
