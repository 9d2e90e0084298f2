"""An endpoint that keeps the rules passes: no check fails, and only what cannot be judged is skipped."""

from __future__ import annotations

import msgspec
import pytest

from strom.conformance.asking import Endpoint
from strom.conformance.report import Report
from strom.conformance.run import examine
from strom.transport.types import OutgoingRequest
from strom.upstreams.settings import ProtocolName
from strom.upstreams.urls import parse_base_url
from tests.conformance.good import MODEL, PROTOCOLS, answer, make_plan
from tests.conformance.stage import Handler, Reply, StageClient, play
from tests.conformance.writers import WHOLES, WRITERS

ALL: tuple[ProtocolName, ...] = ("openai-chat", "openai-responses", "anthropic", "ollama")


def examine_played(handler: Handler, protocols: tuple[ProtocolName, ...] | None = None) -> Report:
    endpoint = Endpoint(StageClient(handler), parse_base_url("http://127.0.0.1:9/v1"), 30.0)
    return play(examine(endpoint, protocols, None))


def test_everything_passes() -> None:
    report = examine_played(answer)
    results = [(protocol.protocol, result) for protocol in report.protocols for result in protocol.checks]
    assert [(name, result) for name, result in results if result.verdict in ("fail", "note")] == []
    skipped = {result.check for _, result in results if result.verdict == "skip"}
    assert skipped == {"stream.compression", "stop.sequence", "tools.choice", "thinking"}
    assert report.model == MODEL
    assert report.ok
    assert all(protocol.timing is not None for protocol in report.protocols)


@pytest.mark.parametrize("protocol", ALL)
def test_thinking_passes(protocol: ProtocolName) -> None:
    def thoughtful(request: OutgoingRequest) -> Reply:
        reply = answer(request)
        name = PROTOCOLS.get(request.target)
        if reply.status != 200 or name is None:
            return reply
        plan = make_plan(name, msgspec.json.decode(request.body), "Let me think.")
        if len(reply.frames) == 1:
            return msgspec.structs.replace(reply, frames=(msgspec.json.encode(WHOLES[name](plan)),))
        return msgspec.structs.replace(reply, frames=tuple(WRITERS[name](plan)))

    checks = {result.check: result for result in examine_played(thoughtful, (protocol,)).protocols[0].checks}
    assert checks["thinking"].verdict == "pass"
    assert [result for result in checks.values() if result.verdict == "fail"] == []


def test_nothing_is_left_behind() -> None:
    """Responses are not stored, and the endpoint is asked one question at a time."""
    client = StageClient(answer)
    play(examine(Endpoint(client, parse_base_url("http://127.0.0.1:9"), 30.0), ("openai-responses",), None))
    bodies = [request.body for request in client.asked if request.target == "/v1/responses"]
    well_formed = [body for body in bodies if body.endswith(b"}")]
    assert well_formed
    assert all(msgspec.json.decode(body)["store"] is False for body in well_formed)
