"""Who called, as the record says it."""

from __future__ import annotations

import pytest

from strom.core.record import CallRecord
from strom.gateway.callers import describe_caller
from strom.transport.types import RequestHead


def described(agent: bytes | None, *, keep_peer: bool = False) -> CallRecord:
    headers = [] if agent is None else [(b"user-agent", agent)]
    record = CallRecord("t1")
    describe_caller(
        record, RequestHead("POST", "/", "", headers, "1.1", "192.0.2.7", dict(headers)), keep_peer=keep_peer
    )
    return record


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        (b"OpenAI/Python 1.90.0", "OpenAI/Python"),
        (b"AsyncAnthropic/Python 0.60", "AsyncAnthropic/Python"),
        (b"claude-cli/1.0.3 (external, cli)", "claude-cli"),
        (b"curl/8.5.0", "curl"),
        (b"codex_cli_rs/0.46 (Debian 12)", "codex_cli_rs"),
        (b"Mozilla/5.0 (X11)", "Mozilla"),
        (b"x" * 500, "x" * 40),
        (b"x" * 40 + b"/" + b"V" * 24 + b" 1.0", "x" * 40 + "/" + "V" * 24),
        (b"x" * 40 + b"/" + b"V" * 25, "x" * 40),
        (b"x" * 40 + b"/" + b"V" * 24 + b"1", "x" * 40),
        (b"<script>", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_program_by_the_first_word_of_its_user_agent(agent: bytes | None, client: str | None) -> None:
    assert described(agent).client == client


def test_the_address_only_where_it_is_wanted() -> None:
    assert described(b"curl/8").peer is None
    assert described(b"curl/8", keep_peer=True).peer == "192.0.2.7"
