"""Which protocols count as spoken, which model is asked, and what never shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.conformance.asking import Endpoint
from strom.conformance.report import Report
from strom.conformance.run import FALLBACK_MODEL, examine
from strom.core.errors import Unreachable
from strom.transport.types import OutgoingRequest
from strom.upstreams.settings import ProtocolName, Secret
from strom.upstreams.urls import parse_base_url
from tests.conformance import breakage as b
from tests.conformance.good import JSON, MODEL, answer, reply
from tests.conformance.stage import Handler, Reply, StageClient, play


def examined(
    handler: Handler, protocols: tuple[ProtocolName, ...] | None = None, model: str | None = MODEL, key: str = ""
) -> tuple[Report, StageClient]:
    client = StageClient(handler)
    endpoint = Endpoint(client, parse_base_url("http://127.0.0.1:9"), 30.0, Secret(key) if key else None)
    return play(examine(endpoint, protocols, model)), client


def only(path: str, instead: Reply) -> Handler:
    """One page of the good endpoint; every other is answered with `instead`."""
    return lambda request: answer(request) if request.target == path else instead


@pytest.mark.parametrize(
    "instead",
    [
        reply(404, {"detail": "Not Found"}),
        reply(405, {}),
        Reply(501, JSON, (b"no",)),
        Reply(200, [(b"content-type", b"text/html")], (b"<html>",)),
        reply(200, {"error": "unexpected endpoint"}),
        Reply(0, [], (), "none"),
    ],
)
def test_what_is_not_spoken(instead: Reply) -> None:
    report, _ = examined(only("/v1/messages", instead))
    assert [protocol.protocol for protocol in report.protocols if protocol.spoken] == ["anthropic"]
    silent = [protocol for protocol in report.protocols if not protocol.spoken]
    assert all(protocol.reason and not protocol.checks for protocol in silent)


def test_what_is_spoken_badly_is_checked() -> None:
    report, _ = examined(b.broken(b.told(b.at("/v1/messages"), 500, {"error": "down"})))
    assert all(protocol.spoken for protocol in report.protocols)
    assert report.counts["fail"] > 0


def test_an_unknown_model_does_not_hide_a_protocol() -> None:
    report, _ = examined(answer, model="other-1")
    assert [protocol.spoken for protocol in report.protocols] == [True] * 4
    assert "model 'other-1' not found" in report.protocols[0].reason


def test_a_key_is_asked_for() -> None:
    report, _ = examined(lambda _: reply(401, {"error": {"message": "who?"}}))
    assert not report.ok
    assert report.protocols[0].reason == "401: who? (name the variable that holds a key with --api-key-env)"


def test_a_protocol_asked_for_by_name_is_checked_in_any_case() -> None:
    report, _ = examined(only("/v1/messages", reply(404, {})), ("ollama",))
    assert not report.protocols[0].spoken
    assert report.protocols[0].checks[0].verdict == "fail"
    assert not report.ok


@pytest.mark.parametrize(
    ("models", "tags", "chosen"),
    [
        ({"data": [{"id": "text-embedding-1"}, {"id": "m-1"}]}, {}, "m-1"),
        ({"data": [{"id": "embed-1"}]}, {}, "embed-1"),
        ({"data": []}, {"models": [{"model": "m-2:latest"}]}, "m-2:latest"),
        ({"data": []}, {}, FALLBACK_MODEL),
    ],
)
def test_which_model_is_asked(models: dict[str, Any], tags: dict[str, Any], chosen: str) -> None:
    def listing(request: OutgoingRequest) -> Reply:
        pages = {"/v1/models": models, "/api/tags": tags}
        return reply(200, pages[request.target]) if request.target in pages else answer(request)

    report, client = examined(listing, ("openai-chat",), model=None)
    assert report.model == chosen
    assert json.loads(client.asked[-1].body)["model"] == chosen


def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match="cannot be reached: connection closed"):
        examined(lambda _: Reply(0, [], (), "refused"), model=None)
    with pytest.raises(Unreachable, match="cannot be reached"):
        examined(lambda _: Reply(0, [], (), "refused"))


def test_fields_that_are_refused_by_name_are_left_out() -> None:
    def choosy(request: OutgoingRequest) -> Reply:
        if request.method == "POST":
            body = json.loads(request.body) if request.body.endswith(b"}") else {}
            for name, words in (("max_tokens", "use max_completion_tokens"), ("temperature", "temperature: only 1")):
                if name in body:
                    return reply(400, {"error": {"message": words, "type": "invalid_request_error"}})
        return answer(request)

    report, client = examined(choosy, ("openai-chat",))
    verdicts = {result.check: result.verdict for result in report.protocols[0].checks}
    assert verdicts["stream.status"] == "pass"
    assert "max_completion_tokens" in json.loads(client.asked[4].body)


def test_the_key_is_sent_and_never_shown() -> None:
    def telltale(request: OutgoingRequest) -> Reply:
        sent = dict(request.headers).get(b"authorization", b"").decode()
        return reply(500, {"error": {"message": f"{sent} is wrong", "type": "x"}})

    report, client = examined(telltale, ("openai-chat",), key="key-secret-1")
    assert (b"authorization", b"Bearer key-secret-1") in client.asked[0].headers
    assert "Bearer *** is wrong" in report.protocols[0].reason
    assert "key-secret-1" not in json.dumps(report.fields())
    _, client = examined(answer, ("anthropic",), key="key-secret-1")
    assert (b"x-api-key", b"key-secret-1") in client.asked[-1].headers


def test_the_fields_of_a_report() -> None:
    fields = examined(answer, ("ollama",))[0].fields()
    assert list(fields) == ["url", "ok", "counts", "model", "protocols"]
    assert list(fields["counts"]) == ["pass", "fail", "skip", "note"]
    assert list(fields["protocols"][0]) == ["protocol", "path", "spoken", "reason", "checks", "timing"]
    assert list(fields["protocols"][0]["checks"][0]) == ["check", "verdict", "detail", "rule", "source"]
