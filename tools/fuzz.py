"""Damages recorded answers at random and looks for promises that break.  fuzz.py [--minutes N] [--seed S] [--target T]…

Targets are the codecs by default; `--parsers` takes every other parser instead, each in its turn for its share of the time.

Every input follows from the seed and its number: `--seed S --from N --count 1` makes one again. Findings are printed once per
kind and kept in `--keep FOLDER`, each as one JSON file that tests/fuzz/kept takes as a test. Exit 1 when there are any.
The recordings are needed: STROM_SHARED names the folder above them.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("src", "")]

from tests.fuzz.campaign import CODECS, PARSERS, TARGETS, Campaign, Finding  # noqa: E402 - the path has to be set first

MOST_KEPT = 3
"""Inputs kept of each kind of finding."""


def main() -> int:
    options = _options()
    logging.disable(logging.CRITICAL)  # what is fed is garbage, and many a parser says so
    if not options.parsers:
        return _run(options, tuple(options.target or CODECS), options.minutes)
    wanted = options.target or PARSERS
    return max([_run(options, (target,), options.minutes / len(wanted)) for target in wanted])


def _run(options: argparse.Namespace, targets: tuple[str, ...], minutes: float) -> int:
    campaign = Campaign(options.seed, targets)
    kinds: dict[str, int] = {}
    begun = time.monotonic()
    for finding in campaign.run(_numbers(options, begun + minutes * 60)):
        kind = _kind(finding)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] == 1:
            print(f"{finding.number}: {kind}\n    {finding.what}", flush=True)
        if options.keep and kinds[kind] <= MOST_KEPT:
            options.keep.mkdir(parents=True, exist_ok=True)
            name = f"{targets[0]}-" if len(targets) == 1 else ""
            path = options.keep / f"{name}{options.seed}-{finding.number}.json"
            path.write_bytes(msgspec.json.encode(finding))
    _report(campaign, kinds, time.monotonic() - begun)
    return 1 if kinds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--parsers", action="store_true")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N")
    parser.add_argument("--count", type=int)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    return parser.parse_args()


def _numbers(options: argparse.Namespace, end: float) -> Iterator[int]:
    for number in itertools.count(options.first):
        if time.monotonic() > end or (options.count is not None and number >= options.first + options.count):
            return
        yield number


def _kind(finding: Finding) -> str:
    """Findings of one cause look alike but for numbers and quotations."""
    what = re.sub(r"""(['"]).*?\1|\{.*\}|0x\w+|\d+""", "…", finding.what.partition("\n")[0])
    return f"{finding.input.target} {finding.input.protocol}: {what[:140]} {finding.what[-40:]}"


def _report(campaign: Campaign, kinds: dict[str, int], seconds: float) -> None:
    total = sum(campaign.counts.values())
    print(
        f"seed {campaign.seed}: {total} inputs, {campaign.size_bytes} bytes, {seconds:.0f} s "
        f"({time.process_time():.0f} s of CPU so far), {sum(kinds.values())} findings",
        flush=True,
    )
    for name, count in sorted(campaign.counts.items()):
        print(f"  {name}: {count}")
    for kind, count in kinds.items():
        print(f"  {count} × {kind}")


if __name__ == "__main__":
    sys.exit(main())
