"""What must hold for any bytes an upstream or a client may send. A judge raises AssertionError with the broken promise; any
other exception that leaves it is one that leaked.

Promises: a decoder keeps the canonical order and ends in exactly one terminal event, wherever its input is cut; what is
encoded from it keeps the grammar of its protocol, judged without the codecs; a relay tells its client exactly one end, and
success only where the upstream's bytes say it; errors and requests raise only our own errors.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

from strom.core.errors import StromError
from strom.core.events import Completed, Event, Failed
from strom.core.fold import fold
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks, Target
from strom.protocols.table import CODECS
from tests.fuzz.contexts import make_context
from tests.grammar import anthropic, ollama, openai_chat, openai_responses

FRONTS = tuple(CODECS)
STATUSES = (400, 401, 404, 429, 500, 503)


def judge_decoder(protocol: str, pieces: list[bytes], draw: random.Random) -> None:
    events = _decode(protocol, pieces)
    whole = _decode(protocol, [b"".join(pieces)])
    assert [_worded(event) for event in events] == [_worded(event) for event in whole], "a cut changes the events"
    _check_order(events)
    front = draw.choice(FRONTS)
    encoder = CODECS[front].encoder(make_context(front))
    last = events[-1]
    out = encoder.encode([event for event in events if not isinstance(event, Failed)])
    if isinstance(last, Failed):
        out += encoder.fail(last.error)
    _check_grammar(front, out)


def judge_relay(protocol: str, pieces: list[bytes], _: random.Random) -> None:
    relay = CODECS[protocol].relay(make_context(protocol), Quirks())
    out = b"".join(relay.feed(piece) for piece in pieces) + relay.finish()
    evidence = relay.evidence
    assert evidence.complete != (evidence.error is not None), "not exactly one verdict"
    if evidence.error is not None:
        assert isinstance(evidence.error, StromError)
        out += relay.fail(evidence.error)
    successes, errors = _signals(protocol, out)
    assert (successes, errors > 0) == (int(evidence.complete), not evidence.complete), (
        f"{successes} successes and {errors} errors are told, complete is {evidence.complete}"
    )
    assert not evidence.complete or any(each in b"".join(pieces) for each in _TERMINATORS[protocol]), (
        "a made-up success"
    )


def judge_reply(protocol: str, pieces: list[bytes], draw: random.Random) -> None:
    codec, body = CODECS[protocol], b"".join(pieces)
    events = codec.decode_reply(body, Quirks())
    _check_order(events)
    if isinstance(events[-1], Completed):
        assert isinstance(json.loads(codec.relay_reply(body, make_context(protocol), events)), dict)
        front = draw.choice(FRONTS)
        assert isinstance(json.loads(CODECS[front].encode_reply(fold(events), make_context(front))), dict)
    assert isinstance(codec.decode_error(draw.choice(STATUSES), [], body), StromError)


def judge_request(protocol: str, pieces: list[bytes], draw: random.Random) -> None:
    codec, body = CODECS[protocol], b"".join(pieces)
    behind = draw.choice(FRONTS)
    target = Target("up", stream=draw.random() < 0.5)
    try:
        request = codec.decode_request(body)
        json.loads(codec.relay_request(body, request, target).body)
        json.loads(CODECS[behind].encode_request(request, target).body)
    except StromError as error:
        json.loads(codec.encode_error(error, "t1").body)


JUDGES: dict[str, Callable[[str, list[bytes], random.Random], None]] = {
    "decoder": judge_decoder,
    "relay": judge_relay,
    "reply": judge_reply,
    "request": judge_request,
}


def _decode(protocol: str, pieces: list[bytes]) -> list[Event]:
    decoder = CODECS[protocol].decoder(Quirks())
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()


def _worded(event: Event) -> str:
    """Errors are compared by kind: what they quote may depend on where the bytes were cut."""
    return f"Failed {type(event.error).__name__}" if isinstance(event, Failed) else repr(event)


def _check_order(events: list[Event]) -> None:
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    assert checker.ended, "no terminal event"


def _check_grammar(front: str, body: bytes) -> None:
    match front:
        case "openai-chat":
            broken = openai_chat.read(body, asked=True).broken
            assert not [rule for rule in broken if rule != "two calls have one id"], broken  # the upstream's doing
        case "anthropic":
            anthropic.read(body)
        case "openai-responses":
            openai_responses.read(body)
        case _:
            ollama.read(body)


def _signals(front: str, body: bytes) -> tuple[int, int]:
    """How often a client is told that the answer is whole, and that it is not, in the frames that stand in the body."""
    successes = errors = 0
    ends = b"\n" if front == "ollama" else b"\r\n|\r|\n"
    for line in re.split(ends, body):
        if front != "ollama" and not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if front == "openai-chat" and data == b"[DONE]":
            successes += 1
            continue
        try:
            value = json.loads(data.decode())
        except ValueError:
            continue
        if isinstance(value, dict):
            success, error = _END[front](value)
            successes, errors = successes + success, errors + error
    return successes, errors


_TERMINATORS = {
    "openai-chat": (b"[DONE]",),
    "anthropic": (b"message_stop",),
    "openai-responses": (b"response.completed", b"response.incomplete"),
    "ollama": (b'"done"',),
}
_END: dict[str, Callable[[dict[str, object]], tuple[bool, bool]]] = {
    "openai-chat": lambda value: (False, bool(value.get("error"))),
    "anthropic": lambda value: (value.get("type") == "message_stop", value.get("type") == "error"),
    "openai-responses": lambda value: (
        value.get("type") in ("response.completed", "response.incomplete"),
        value.get("type") == "response.failed",
    ),
    "ollama": lambda value: (value.get("done") is True, bool(value.get("error"))),
}
