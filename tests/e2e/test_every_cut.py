"""No cut makes the gateway lie: recorded answers behind every front protocol, ended at byte offsets by a close and by a reset.

By default a sample of offsets of a few recordings. STROM_EVERY_CUT=1: every byte of the recordings up to `SHORT_BYTES`, and
of every longer one each `STRIDE`-th byte (at most about `MOST` of them) and its last `TAIL` bytes. STROM_EVERY_CUT=all: every
byte of every recording, read byte by byte (hours); STROM_EVERY_CUT_PART=100:162 takes those recordings alone, counted from the
shortest. The number of cuts is printed at the end, also of a run that is interrupted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e.cuts import BEHIND, FRONTS, HOWS, Cut, Cutter, Proof, proof_of
from tests.recordings import index, load, names, recordings_root

MODE = os.environ.get("STROM_EVERY_CUT", "")
PART = os.environ.get("STROM_EVERY_CUT_PART", "")
SHORT_BYTES = 4000
STRIDE, TAIL, MOST = 211, 40, 60
SAMPLE_STRIDE, SAMPLE_TAIL = 83, 24
SAMPLE = [
    ("mlx_lm", "echo_tools_stream"),
    ("vllm", "anthropic_max_tokens"),
    ("vllm", "err_bad_schema"),
    ("llama_cpp_python", "n2"),
    ("transformers", "max_tokens"),
    ("xllamacpp_tools", "echo_anthropic_tools"),
    ("xllamacpp_tools", "slow_prefill_progress"),
    ("xllamacpp_tools", "echo_responses_tools"),
    ("vllm", "nonstream"),
    ("xllamacpp", "abort"),
    ("vllm", "err_bad_type"),
    ("llama_cpp_python", "err_bad_schema"),
]


def _answers() -> list[tuple[str, str]]:
    """Streams, whole replies and errors of the models; all of them with the shortest first."""
    found = [name for protocol in BEHIND for name in names(protocol=protocol)]
    if not MODE:
        return [name for name in SAMPLE if name in found]
    sizes = {(entry["engine"], entry["case"]): entry["bytes"] for entry in index()} if found else {}
    first, _, last = PART.partition(":")
    return sorted(found, key=lambda name: sizes[name])[int(first or 0) : int(last) if last else None]


def _offsets(size: int) -> list[int]:
    if MODE and size <= SHORT_BYTES:
        return list(range(size + 1))
    stride, tail = (max(STRIDE, size // MOST), TAIL) if MODE else (SAMPLE_STRIDE, SAMPLE_TAIL)
    return sorted({*range(0, size, stride), *range(max(0, size - tail), size + 1)})


@pytest.fixture(scope="module")
def count(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """Cuts by front protocol; the sum is printed when all are done."""
    counter: Counter[str] = Counter()
    yield counter
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    if capture is not None and counter:
        kinds = ", ".join(f"{front} {number}" for front, number in counter.items())
        with capture.global_and_fixture_disabled():
            print(f"\n{counter.total()} cuts ({kinds})")


def test_the_recordings_are_there() -> None:
    recordings_root()
    assert len(_answers()) >= len(SAMPLE)


def test_the_quick_way_cuts_as_the_plain_one(count: Counter[str]) -> None:
    """Also for a judge that has something to complain of: proof that is seen one byte too late."""
    cutter = Cutter(load("vllm", "anthropic_max_tokens"))
    assert cutter.proof is not None
    end = cutter.proof.surely
    assert list(_cut_everywhere(cutter, count, range(end - 40, end + 1))) == []
    cutter.proof = Proof(end + 1, end + 1)
    [what] = _cut_everywhere(cutter, count, range(end - 40, end + 1))
    assert what.count(f"at {end}: a success without proof") == what.count(": ") == len(FRONTS) * len(HOWS)


def _cut_everywhere(cutter: Cutter, count: Counter[str], offsets: range) -> Iterator[str]:
    """Counts what is done, so that an interrupted run knows."""
    return cutter.cut_everywhere(offsets, lambda done: count.update(dict.fromkeys(FRONTS, done * len(HOWS))))


@pytest.mark.parametrize(("engine", "case"), _answers())
def test_no_cut_makes_the_gateway_lie(engine: str, case: str, count: Counter[str]) -> None:
    if MODE == "all":
        cutter = Cutter(load(engine, case))
        lies = list(_cut_everywhere(cutter, count, range(len(cutter.body) + 1)))
        assert not lies, f"{len(lies)} times, first {lies[0]}"
        return
    cutter = Cutter(load(engine, case), grammar=not MODE)
    broken: Counter[str] = Counter()
    first: dict[str, Cut] = {}
    for front in FRONTS:
        for offset in _offsets(len(cutter.body)):
            for how in HOWS:
                cut = Cut(front, offset, how)
                for complaint in cutter.cut(cut):
                    broken[f"{front}: {complaint}"] += 1
                    first.setdefault(f"{front}: {complaint}", cut)
                count[front] += 1
    assert not broken, [f"{what} ({number} times, first at {first[what]})" for what, number in broken.items()]


def test_an_uncut_answer_is_a_success_and_its_last_byte_matters() -> None:
    """The judge itself: it sees proof at the end, and none before."""
    for engine, case in (("vllm", "anthropic_max_tokens"), ("xllamacpp_tools", "echo_responses_tools")):
        recording = load(engine, case)
        proof = proof_of(BEHIND[recording.index["protocol"]], recording.response)
        assert proof is not None
        assert proof.surely == len(recording.response)
        assert proof_of(BEHIND[recording.index["protocol"]], recording.response[:-1]) is None
