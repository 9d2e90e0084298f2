"""Inputs one after the other, each from its seed and number alone, and what became of them."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Iterator

import msgspec

from tests.fuzz.corpus import Answer, load_answers, load_requests
from tests.fuzz.judges import JUDGES
from tests.fuzz.mutations import mutate, pieces_of
from tests.fuzz.surfaces import SURFACES, make_data
from tests.patience import TRIES, cpu_s

CODECS = tuple(JUDGES)
PARSERS = tuple(SURFACES)
TARGETS = CODECS + PARSERS
SLOW_S, SLOW_S_PER_BYTE = 0.5, 60e-6
"""CPU time that an input may take: a hundred times what is usual, and linear in its length."""


class Input(msgspec.Struct, frozen=True):
    target: str
    protocol: str
    """"" for what is no codec."""
    pieces: list[bytes]
    draw_seed: str
    """Of what the judge draws: the protocol in front, the status."""


class Finding(msgspec.Struct, frozen=True):
    number: int
    input: Input
    what: str
    """The last line of the exception and where it was raised."""


class Campaign:
    def __init__(self, seed: int, targets: tuple[str, ...] = CODECS) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.size_bytes = 0
        self._targets = targets
        # Streams are what this is for: four of five inputs, where all codecs are asked for.
        self._weights = [4 if target in ("decoder", "relay") else 1 for target in targets]
        self._pools = _pools(targets) if set(targets) & set(CODECS) else {}

    def make(self, number: int) -> Input:
        draw = random.Random(f"{self.seed}:{number}")
        target = draw.choices(self._targets, self._weights)[0]
        if target in SURFACES:
            return Input(target, "", pieces_of(make_data(SURFACES[target], draw), draw), f"{self.seed}:{number}:judge")
        pools = self._pools[target]
        protocol = draw.choice(list(pools))
        others = pools[draw.choice(list(pools))]
        data = mutate(draw.choice(pools[protocol]), others, draw)
        return Input(target, protocol, pieces_of(data, draw), f"{self.seed}:{number}:judge")

    def run(self, numbers: Iterator[int]) -> Iterator[Finding]:
        for number in numbers:
            each = self.make(number)
            self.counts[f"{each.target} {each.protocol}".strip()] += 1
            self.size_bytes += sum(map(len, each.pieces))
            what = judge(each)
            if what:
                yield Finding(number, each, what)


def judge(each: Input) -> str:
    """What is broken, "" when nothing is."""
    try:
        taken_s = cpu_s(lambda: _judge(each))
    except Exception as error:  # noqa: BLE001 - to find exceptions is what this is for
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if "strom" in frame.filename), frames[-1])
        return f"{type(error).__name__}: {str(error)[:200]} ({place.filename.rpartition('/')[2]}:{place.lineno})"
    allowed_s = SLOW_S + SLOW_S_PER_BYTE * sum(map(len, each.pieces))
    if taken_s <= allowed_s:
        return ""
    # Once proves nothing: what is made at the first time, or a busy machine.
    taken_s = min(cpu_s(lambda: _judge(each)) for _ in range(TRIES))
    return f"slow: {taken_s:.2f} s of {allowed_s:.2f} s" if taken_s > allowed_s else ""


def _judge(each: Input) -> None:
    draw = random.Random(each.draw_seed)
    if each.target in SURFACES:
        SURFACES[each.target].judge(each.pieces, draw)
    else:
        JUDGES[each.target](each.protocol, each.pieces, draw)


def _pools(targets: tuple[str, ...]) -> dict[str, dict[str, list[Answer]]]:
    answers, requests = load_answers(), load_requests()
    streams = [answer for answer in answers if answer.streamed and answer.data]
    wholes = [answer for answer in answers if not answer.streamed and answer.data]
    pools = {"decoder": streams, "relay": streams, "reply": wholes, "request": requests}
    return {target: _by_protocol(pools[target]) for target in targets if target in pools}


def _by_protocol(answers: list[Answer]) -> dict[str, list[Answer]]:
    pools: dict[str, list[Answer]] = {}
    for answer in answers:
        pools.setdefault(answer.protocol, []).append(answer)
    return pools
