"""The collected cases that have this protocol on one side, run through the codecs without a gateway.

What needs a process (heartbeats, records, HTTP answers) is the gateway's; here are the bytes. Cases whose other side has
no codec yet are not listed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strom.core.errors import StromError
from strom.core.events import Event, Failed
from strom.core.fold import fold
from strom.core.tool_names import ToolNameFilter
from strom.protocols.codec import Codec, Quirks, Target
from strom.protocols.openai_responses import CODEC
from strom.protocols.table import CODECS
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import context
from tests.recordings import names, recordings_root

TABLE: dict[str, Codec] = {**CODECS, "openai-responses": CODEC}


def cases() -> list[dict[str, Any]]:
    """Empty where the recordings, beside which the cases lie, are missing; `test_the_cases_are_there` notices."""
    if not names():
        return []
    found = []
    for path in sorted((recordings_root().parent / "cases" / "open").glob("*.json")):
        case = json.loads(Path(path).read_text())
        sides = {case.get("client_protocol"), case.get("backend_protocol")}
        if "openai-responses" in sides and sides <= TABLE.keys():
            found.append(case)
    return found


def written(case: dict[str, Any]) -> list[bytes]:
    """What the backend writes, write by write."""
    parts = case["backend_response"].get("body") or []
    return [(part if isinstance(part, str) else part.get("text", "")).encode() for part in parts]


def decode(case: dict[str, Any], table: dict[str, Any]) -> list[Event]:
    codec, restored = TABLE[case["backend_protocol"]], ToolNameFilter(table)
    if "event-stream" not in case["backend_response"]["headers"]["content-type"]:
        return restored.feed(codec.decode_reply(b"".join(written(case)), Quirks()))
    decoder = codec.decoder(Quirks())
    events: list[Event] = []
    for piece in written(case):
        events += restored.feed(decoder.feed(piece))
    return events + restored.feed(decoder.finish())


def is_subset(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            name in value and is_subset(wanted[name], value[name]) for name in wanted
        )
    if isinstance(wanted, list):
        return isinstance(value, list) and len(wanted) == len(value) and all(map(is_subset, wanted, value))
    return bool(wanted == value)


def encode_request(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The body the backend gets, and the table of tool names."""
    body = json.dumps(case["client_request"]["body"]).encode()
    front, behind = TABLE[case["client_protocol"]], TABLE[case["backend_protocol"]]
    asked, target = front.decode_request(body), Target("up", stream=True)
    call = behind.relay_request(body, asked, target) if front is behind else behind.encode_request(asked, target)
    return json.loads(call.body), dict(call.tool_names)


def check_request(sent: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert is_subset(wanted.get("body_subset", {}), sent)
    for path, length in wanted.get("list_len", {}).items():
        assert len(sent[path]) == length
    if "tool_id_max_len" in wanted:
        assert all(len(item["call_id"]) <= wanted["tool_id_max_len"] for item in sent["input"] if "call_id" in item)


def check_front(case: dict[str, Any], events: list[Event], checks: dict[str, Any]) -> None:
    """This protocol in front: the stream that the client reads."""
    body = json.dumps(case["client_request"]["body"]).encode()
    encoder = CODEC.encoder(context(request=CODEC.decode_request(body)))
    out = b"".join(encoder.encode([event]) for event in events if not isinstance(event, Failed))
    last = events[-1]
    seen = grammar.read(out + (encoder.fail(last.error) if isinstance(last, Failed) else b""))
    shown = [kind for at, kind in enumerate(seen.types) if at == 0 or seen.types[at - 1] != kind]
    assert "events" not in checks or shown == checks["events"]
    assert "final_event" not in checks or seen.types[-1] == checks["final_event"]
    assert "output_types" not in checks or seen.kinds == checks["output_types"]
    assert is_subset(checks.get("response", {}), seen.response)
    assert is_subset(checks.get("usage", {}), seen.response["usage"])
    if "text" in checks:
        text, wanted = seen.text("output_text", "refusal"), checks["text"]
        assert text == wanted or (checks.get("trim_ok") and text.strip() == wanted.strip())
    if "reasoning" in checks:
        assert seen.text("reasoning_summary_text") == checks["reasoning"]
    for call, wanted in zip(seen.calls, checks.get("tool_calls", []), strict=False):
        assert (call[1], json.loads(call[2])) == (wanted["name"], wanted["arguments"])
    if "custom_tool_call" in checks:
        assert seen.calls[0][1:] == (checks["custom_tool_call"]["name"], checks["custom_tool_call"]["input"])


def test_the_cases_are_there() -> None:
    recordings_root()
    assert len(cases()) >= 20


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_a_case(case: dict[str, Any]) -> None:
    checks = case["expected"]["checks"]
    checks = {**checks, **checks.get("one_of", [{}])[0]}
    if "no_backend_request" in checks:
        return
    sent, table = encode_request(case)
    check_request(sent, checks.get("backend_request", {}))
    response = case["backend_response"]
    if response.get("status", 200) != 200:
        body = b"".join(written(case))
        error = TABLE[case["backend_protocol"]].decode_error(response["status"], [], body)
        assert error.status in checks["http_status"]
        return
    events = decode(case, table)
    last = events[-1]
    if case["client_protocol"] == "openai-responses":
        check_front(case, events, checks)
    elif isinstance(last, Failed):
        assert isinstance(last.error, StromError)
        assert last.error.status in checks["http_status"]
        assert checks["error"]["message_contains"] in last.error.message
    else:
        reply = fold(events)
        text = "".join(getattr(part, "text", "") for part in reply.parts)
        assert text == checks["text"]
        assert reply.finish_reason == checks["finish"]
