"""A short run of the fuzzer over new inputs of a fixed seed, and every input that once broke a promise.

Long runs: `python tools/fuzz.py --minutes 10`. What they find belongs into the folder kept, with a fix.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import msgspec
import pytest

from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from tests.fuzz.campaign import Campaign, Finding, Input, judge
from tests.fuzz.contexts import make_context
from tests.fuzz.corpus import load_answers
from tests.fuzz.mutations import mutate
from tests.fuzz.surfaces import SURFACES
from tests.patience import assert_linear
from tests.recordings import recordings_root

INPUTS = 500
PARSER_INPUTS = 100
SEED = 20
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
LINEAR_SEEDS = range(3)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_broke(path: Path) -> None:
    finding = msgspec.json.decode(path.read_bytes(), type=Finding)
    assert judge(finding.input) == ""


def test_new_inputs() -> None:
    recordings_root()
    campaign = Campaign(SEED)
    findings = list(campaign.run(iter(range(INPUTS))))
    assert [(finding.number, finding.what) for finding in findings] == []
    assert len(campaign.counts) == 16, "not every target and protocol had its turn"


@pytest.mark.parametrize("target", SURFACES)
def test_no_parser_gives_way(target: str) -> None:
    """Its seeds as they are, byte by byte too, and some damaged ones."""
    for seed in SURFACES[target].seeds:
        for pieces in ([seed], [seed[at : at + 1] for at in range(len(seed))] if len(seed) < 1000 else []):
            assert judge(Input(target, "", pieces, "seed")) == "", seed
    findings = list(Campaign(SEED, (target,)).run(iter(range(PARSER_INPUTS))))
    assert [(finding.number, finding.what) for finding in findings] == []


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize("seed", LINEAR_SEEDS)
def test_work_is_linear(protocol: str, seed: int) -> None:
    """A damaged stretch, sixteen times as often: about sixteen times the work; quadratic would be 256."""
    recordings_root()
    draw = random.Random(seed)
    streams = [each for each in load_answers() if each.protocol == protocol and each.streamed]
    stretch = mutate(draw.choice(streams), streams, draw)
    for feed in (_decode, _relay):
        assert_linear(lambda size, feed=feed: partial(feed, protocol, stretch * size), 4, times=16)  # type: ignore[misc]


def _decode(protocol: str, data: bytes) -> None:
    decoder = CODECS[protocol].decoder(Quirks())
    for at in range(0, len(data), 997):
        decoder.feed(data[at : at + 997])
    decoder.finish()


def _relay(protocol: str, data: bytes) -> None:
    relay = CODECS[protocol].relay(make_context(protocol), Quirks())
    for at in range(0, len(data), 997):
        relay.feed(data[at : at + 997])
    relay.finish()
