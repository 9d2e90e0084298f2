"""What faults make of a recording: steps, framing, length and time."""

from __future__ import annotations

import random
import zlib

import msgspec
import pytest

from strom.replay.faults import parse_faults
from strom.replay.recording import Ending, Recording
from strom.replay.script import Pause, Script, Send, Step, Stop, write_script
from tests.replay.recordings import BODY, FRAMES, STREAM, stream, whole


def script(recording: Recording, faults: str = "", *, speed: float | None = 1.0) -> Script:
    return write_script(recording, parse_faults(faults), random.Random(7), speed=speed)


def sent(steps: tuple[Step, ...]) -> bytes:
    """What goes out before the first stop."""
    data = b""
    for step in steps:
        if isinstance(step, Stop):
            break
        data += step.data if isinstance(step, Send) else b""
    return data


def test_without_faults_every_read_is_one_write_at_its_time() -> None:
    made = script(stream())
    assert [step.data for step in made.steps if isinstance(step, Send)] == list(FRAMES)
    assert made.head_delay_s == pytest.approx(0.01)
    assert [step.delay_s for step in made.steps if isinstance(step, Send)] == pytest.approx([0.01] * 5)
    assert (made.status, made.framing, made.headers) == (200, "chunked", (("content-type", "text/event-stream"),))


def test_time_is_scaled_or_left_out() -> None:
    assert script(stream(), speed=10).head_delay_s == pytest.approx(0.001)
    made = script(stream(), speed=None)
    assert made.head_delay_s == 0
    assert {step.delay_s for step in made.steps if isinstance(step, Send)} == {0.0}


@pytest.mark.parametrize("offset", range(0, len(BODY) + 1, 7))
def test_a_cut_is_at_its_byte_and_the_length_stays(offset: int) -> None:
    made = script(stream(), f"cut@{offset}=reset")
    assert sent(made.steps) == BODY[:offset]
    assert Stop("reset") in made.steps
    assert made.length == len(BODY)


def test_a_cut_between_two_reads_does_not_wait_for_the_second() -> None:
    made = script(stream(), f"cut@{len(FRAMES[0])}")
    assert made.steps[1] == Stop("close")


def test_a_place_in_tokens() -> None:
    assert sent(script(stream(), "cut@1t").steps) == FRAMES[0] + FRAMES[1]
    assert sent(script(stream(), "cut@0t").steps) == FRAMES[0]
    assert sent(script(stream(), "cut@99t").steps) == BODY


def test_a_place_behind_the_end_is_the_end() -> None:
    assert script(stream(), "cut@99999").steps[-1] == Stop("close")


@pytest.mark.parametrize("place", ["99999", "5t"])
def test_a_body_of_known_length_is_broken_before_its_last_byte(place: str) -> None:
    made = script(whole("hello"), f"cut@{place}")
    assert len(sent(made.steps)) == made.length - 1
    made = script(whole("hello"), f"stall@{place}")
    assert isinstance(made.steps[-1], Send)
    assert made.steps[-1].data == whole("hello").body[-1:]


def test_stall() -> None:
    made = script(stream(), "stall@1t=2.5; stall@2t")
    assert [step for step in made.steps if isinstance(step, Pause)] == [Pause(2.5), Pause(None)]
    assert made.steps[2] == Pause(2.5)
    assert sent(made.steps) == BODY


def test_garbage_is_seeded_and_giants_are_legal_frames() -> None:
    at = len(FRAMES[0])
    one, two = script(stream(), f"garbage@{at}=9"), script(stream(), f"garbage@{at}=9")
    assert one == two
    assert sent(one.steps) == BODY[:at] + sent(one.steps)[at : at + 9] + BODY[at:]
    giant = sent(script(stream(), f"giant@{at}=1000").steps)
    assert giant == BODY[:at] + b":" + b"x" * 997 + b"\n\n" + BODY[at:]
    lines = stream(b"{}\n", headers=(("content-type", "application/x-ndjson"),))
    assert sent(script(lines, "giant@0=5").steps) == b"     {}\n"


def test_terminators() -> None:
    assert sent(script(stream(), "no-terminator").steps) == BODY[:-14]
    assert sent(script(stream(), "double-terminator").steps) == BODY + FRAMES[-1]
    torn = stream(BODY[:-10], BODY[-10:])
    assert sent(script(torn, "no-terminator").steps) == BODY[:-14]
    bare = stream(*FRAMES[:2])
    assert sent(script(bare, "double-terminator").steps) == FRAMES[0] + FRAMES[1]


def test_trickle_sends_single_bytes_from_its_place_on() -> None:
    made = script(stream(), f"trickle@{len(FRAMES[0]) + 3}=5", speed=None)
    sends = [step for step in made.steps if isinstance(step, Send)]
    assert [len(step.data) for step in sends] == [len(FRAMES[0]), 3] + [1] * (len(BODY) - len(FRAMES[0]) - 3)
    assert sends[2].delay_s == pytest.approx(0.005)
    assert b"".join(step.data for step in sends) == BODY


def test_gzip_flushes_every_write() -> None:
    made = script(stream(), "gzip")
    assert ("content-encoding", "gzip") in made.headers
    inflate = zlib.decompressobj(31)
    sends = [step.data for step in made.steps if isinstance(step, Send)]
    assert [inflate.decompress(data) for data in sends] == [*FRAMES, b""]
    assert inflate.eof


def test_slow_head() -> None:
    assert script(stream(), "slow-head=3", speed=None).head_delay_s == 3


@pytest.mark.parametrize(
    ("kind", "stop"), [("cut", "close"), ("reset", "reset"), ("client_left", "close"), ("unreachable", "close")]
)
def test_a_recorded_end_is_played_again(kind: str, stop: str) -> None:
    recording = msgspec.structs.replace(stream(), ending=Ending(9.0, kind))  # type: ignore[arg-type]  # one of the kinds
    assert script(recording).steps[-1] == Stop(stop)  # type: ignore[arg-type]
    nothing = msgspec.structs.replace(recording, head=None, pieces=())
    assert (script(nothing).status, script(nothing).steps) == (0, (Stop("close"),))


def test_framing_is_the_recorded_one() -> None:
    made = script(whole("a"))
    assert (made.framing, made.length) == ("length", len(sent(made.steps)))
    assert script(stream(headers=STREAM[:1])).framing == "close"
