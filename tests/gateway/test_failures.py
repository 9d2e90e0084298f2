"""What an upstream did wrong is said as what it did."""

import logging
from typing import Any

import pytest

from strom.transport.types import TransportFailure
from tests.gateway.rig import JSON, ROLE, SSE, Rig, text

FAILED: list[tuple[Any, str, str]] = [
    ("connect", "ConnectionRefusedError: [Errno 111]", "Is it running?"),
    ("connect", "gaierror: [Errno -2] Name or service not known", "cannot be resolved"),
    ("connect_timeout", "", "did not accept a connection in time"),
    ("tls", "[SSL: WRONG_VERSION_NUMBER]", "whether it speaks https at all"),
    ("proxy", "", "proxy variables"),
    ("closed_before_response", "", "without an answer"),
    ("cut", "", "broke before its answer was complete"),
    ("decoding", "", "compressed body"),
    ("protocol", "", "no valid HTTP response"),
    ("too_large", "", "no valid HTTP response"),
]


@pytest.mark.parametrize(("kind", "detail", "words"), FAILED)
def test_a_failure_of_the_network(kind: Any, detail: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    exchange = rig.call()
    rig.upstream().fail(TransportFailure(kind, detail, sent=False))
    assert words in exchange.body_out.decode()
    assert "'p1'" in exchange.body_out.decode()
    assert not detail or detail not in exchange.body_out.decode()
    assert detail in caplog.text, "the operator finds the detail in the log"


@pytest.mark.parametrize("body", [b"", b": comment\n\n", b"data: {half a fra"])
@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
def test_an_answer_that_never_began(front: str, body: bytes) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().end(body)
    assert exchange.status == 502
    assert "before an answer began" in exchange.body_out.decode()
    assert rig.record.status == "incomplete"


def test_an_answer_that_ended_in_the_middle() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text("Hel"))
    assert "in the middle" in exchange.body_out.decode()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirection_is_not_followed(status: int) -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(status, [*JSON, (b"location", b"http://elsewhere/")])
    rig.upstream().end()
    assert exchange.status == 502
    assert "redirects" in exchange.body_out.decode()
    assert len(rig.client.sent) == 1
