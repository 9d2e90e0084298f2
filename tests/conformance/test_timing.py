"""What the clock shows: bursts, leaving clients, endpoints that are too slow. The clock jumps, so nothing waits."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from strom.conformance.asking import MAX_TIMEOUTS, Endpoint
from strom.conformance.report import ProtocolReport
from strom.conformance.run import examine
from strom.transport.types import OutgoingRequest
from strom.upstreams.settings import ProtocolName
from strom.upstreams.urls import parse_base_url
from tests.conformance import breakage as b
from tests.conformance.good import MODEL, answer
from tests.conformance.stage import Handler, Reply, StageClient, play

ALL: tuple[ProtocolName, ...] = ("openai-chat", "openai-responses", "anthropic", "ollama")
LONG = b"1024"
BRIEF = b"Say ok"


class Serial:
    """One place only. When the client leaves, the place stays taken for `lasting_s`: the next answer waits so long."""

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._taken = False

    def __call__(self, request: OutgoingRequest) -> Reply:
        reply = answer(request)
        if LONG in request.body:
            self._taken = True
        elif self._taken and BRIEF in request.body:
            self._taken = False
            return msgspec.structs.replace(reply, wait_s=reply.wait_s + self._lasting_s)
        return reply


class Busy:
    """One place, taken for `lasting_s` by a long answer, whoever has left: all others wait."""

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._until = 0.0

    def __call__(self, request: OutgoingRequest) -> Reply:
        reply, now = answer(request), asyncio.get_running_loop().time()
        waits = max(0.0, self._until - now)
        if LONG in request.body:
            self._until = now + waits + self._lasting_s
        return msgspec.structs.replace(reply, wait_s=reply.wait_s + waits)


def report_of(handler: Handler, protocol: ProtocolName = "openai-chat", timeout_s: float = 30.0) -> ProtocolReport:
    endpoint = Endpoint(StageClient(handler), parse_base_url("http://127.0.0.1:9"), timeout_s)
    return play(examine(endpoint, (protocol,), MODEL)).protocols[0]


def verdict(report: ProtocolReport, check: str) -> tuple[str, str]:
    return next((result.verdict, result.detail) for result in report.checks if result.check == check)


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize("check", ["cancel.stream", "cancel.whole"])
def test_generation_that_goes_on(protocol: ProtocolName, check: str) -> None:
    assert verdict(report_of(Serial(0.5), protocol), check)[0] == "pass"
    found, detail = verdict(report_of(Serial(8.0), protocol), check)
    assert found == "fail"
    assert "an inference" in detail


@pytest.mark.parametrize("lasting_s", [80.0, 800.0])
def test_what_a_check_left_behind_is_not_held_against_the_next_protocol(lasting_s: float) -> None:
    endpoint = Endpoint(StageClient(Busy(lasting_s)), parse_base_url("http://127.0.0.1:9"), 30.0)
    first, second = play(examine(endpoint, ("openai-chat", "openai-responses"), MODEL)).protocols
    assert verdict(first, "cancel.stream")[0] == "fail"
    if lasting_s > 4 * 30:
        assert {each.verdict for each in second.checks} == {"skip"}
    else:
        assert [each.check for each in second.checks if each.verdict == "fail"] == ["cancel.stream", "cancel.whole"]


def test_nobody_can_leave_an_answer_that_is_over() -> None:
    at_once = b.broken(b.frames(b.streams, lambda found: (b"".join(found),)))
    assert verdict(report_of(at_once), "cancel.stream") == (
        "skip",
        "the answer was over before the client could leave (framed)",
    )


def test_without_a_baseline_nothing_is_said() -> None:
    found, detail = verdict(report_of(b.broken(b.told(b.asking("Say ok"), 500, {}))), "cancel.whole")
    assert (found, detail) == ("skip", "there is no baseline: a short request is answered with 500")


def test_a_burst_is_told_from_a_fast_answer() -> None:
    fast = b.broken(b.delayed(b.streams, 0.05, 0.00005))
    assert verdict(report_of(fast), "stream.flow")[0] == "pass"
    one_read = b.broken(b.frames(b.streams, lambda found: (b"".join(found),)))
    assert "all 38 deltas in one read" in verdict(report_of(one_read), "stream.flow")[1]
    few = b.broken(b.without('"content": " '))
    assert verdict(report_of(few), "stream.flow") == ("skip", "only 1 deltas")


def test_the_times_of_a_stream() -> None:
    timing = report_of(answer).timing
    assert timing is not None
    assert (timing.time_to_first_token_ms, timing.median_gap_ms, timing.longest_gap_ms) == (70.0, 20.0, 20.0)
    assert timing.request_duration_ms == 870.0


def test_heartbeats_are_counted() -> None:
    beating = b.broken(b.frames(b.streams, lambda found: (b": wait\n\n", *found)))
    timing = report_of(beating).timing
    assert timing is not None
    assert timing.heartbeats == 1


def test_a_silent_endpoint_is_left_alone_soon() -> None:
    client = StageClient(b.broken(b.ended(lambda request, _: request.method == "POST", "hang")))
    silent = Endpoint(client, parse_base_url("http://127.0.0.1:9"), 3.0)
    report = play(examine(silent, ("openai-chat",), MODEL)).protocols[0]
    assert sum(request.method == "POST" for request in client.asked) == MAX_TIMEOUTS
    assert client.aborted == MAX_TIMEOUTS
    found, detail = verdict(report, "error.malformed")
    assert (found, detail) == ("skip", "not asked: 2 answers did not come within 3 s")


def test_a_slow_answer_breaks_no_rule_of_form() -> None:
    slow = b.broken(b.delayed(b.both(b.streams, b.asking("get_weather")), 1.0, 20.0))
    found, detail = verdict(report_of(slow), "tools.stream")
    assert (found, detail) == ("skip", "the answer did not end within 30 s")
    endless = report_of(b.broken(b.ended(b.streams, "hang")))
    assert verdict(endless, "stream.end")[0] == "fail"
    assert verdict(endless, "stream.terminator")[0] == "skip"
