"""What a relayed Messages stream or whole reply lacks: types, starts, and the reason after a tool call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.events import Completed
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks
from tests.grammar import anthropic as grammar
from tests.protocols.anthropic_messages.frames import (
    MESSAGE_STOP,
    PING,
    block_start,
    context,
    delta,
    end,
    event,
    start,
    stop,
    text_stream,
)
from tests.protocols.anthropic_messages.test_relay import relay, repaired

CALL = [block_start(0, "tool_use"), delta(0, "json", '{"a":1}'), stop(0)]


def untyped(frame: bytes) -> bytes:
    """The frame whose type stands in its event line alone."""
    head, _, data = frame.partition(b"data: ")
    members = json.loads(data)
    del members["type"]
    return head + b"data: " + json.dumps(members).encode() + b"\n\n"


def frames_of(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(block.partition(b"data: ")[2]) for block in out.split(b"\n\n")[:-1]]


# --- the reason ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "wanted"), [("end_turn", "tool_use"), ("max_tokens", "max_tokens"), ("odd", "odd")])
def test_end_turn_after_a_call_is_tool_use(reason: str, wanted: str) -> None:
    out, evidence = relay(start(), *CALL, end(reason, output_tokens=4, x_mine=7), MESSAGE_STOP)
    (last,) = [frame for frame in frames_of(out) if frame["type"] == "message_delta"]
    assert last["delta"]["stop_reason"] == wanted
    assert (last["usage"]["output_tokens"], last["usage"]["x_mine"]) == (4, 7)
    assert evidence.finish_raw == reason
    assert (evidence.finish_reason == "tool_calls") == (reason == "end_turn")


def test_without_a_call_it_stays() -> None:
    frames = text_stream("a")
    assert relay(*frames)[0] == b"".join(frames)


def test_a_tool_that_ran_upstream_is_no_call() -> None:
    frames = [start(), block_start(0, "server_tool_use", id="s", name="web_search", input={}), stop(0)]
    frames += [end("end_turn", output_tokens=4), MESSAGE_STOP]
    assert relay(*frames)[0] == b"".join(frames)


def test_an_assumed_end_after_a_call() -> None:
    quirks = Quirks(done_required=False, finish_reason_required=False)
    out, _ = relay(start(), *CALL, quirks=quirks)
    assert grammar.read(out).finish == "tool_use"


def whole(**members: Any) -> dict[str, Any]:
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": None}
    return {**base, "usage": {"input_tokens": 1, "output_tokens": 2}, **members}


def relayed_whole(**members: Any) -> dict[str, Any]:
    body = json.dumps(whole(**members)).encode()
    events = CODEC.decode_reply(body, Quirks())
    assert isinstance(events[-1], Completed)
    out: dict[str, Any] = json.loads(CODEC.relay_reply(body, context(block=lambda: None), events))
    return out


@pytest.mark.parametrize(("reason", "wanted"), [("end_turn", "tool_use"), ("max_tokens", "max_tokens")])
def test_whole_replies(reason: str, wanted: str) -> None:
    content = [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "x_mine": 1}]
    out = relayed_whole(content=content, stop_reason=reason)
    assert (out["stop_reason"], out["content"]) == (wanted, content)


def test_whole_replies_with_blocks_without_types() -> None:
    blocks = [{"thinking": "hm"}, {"text": "a"}, {"id": "t", "name": "f", "input": {"a": 1}}]
    out = relayed_whole(content=blocks, stop_reason="end_turn")
    assert [block["type"] for block in out["content"]] == ["thinking", "text", "tool_use"]
    assert out["stop_reason"] == "tool_use"


# --- types -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", range(8))
def test_a_type_that_stands_in_the_event_line_only(broken: int) -> None:
    frames = [*text_stream("a", "b", "c")]
    frames.insert(2, PING)
    frames[broken] = untyped(frames[broken])
    seen = repaired(*frames)
    assert seen.text == "abc"


def test_no_event_has_its_type_in_its_data() -> None:
    frames = [
        start(),
        *CALL,
        block_start(1),
        *(delta(1, "text", word) for word in "abcde"),
        stop(1),
        end(),
        MESSAGE_STOP,
    ]
    seen = repaired(*map(untyped, frames))
    assert seen.text == "abcde"
    assert seen.finish == "tool_use"


@pytest.mark.parametrize(
    ("block", "kind", "part"),
    [
        ({"id": "t", "name": "f", "input": {}}, "tool_use", ("json", "{}")),
        ({"id": "t", "name": "f"}, "tool_use", ("json", "{}")),
        ({"thinking": ""}, "thinking", ("thinking", "hm")),
        ({"text": ""}, "text", ("text", "a")),
        ({}, "text", ("text", "a")),
    ],
)
def test_a_block_without_a_type_starts_before_its_deltas(
    block: dict[str, Any], kind: str, part: tuple[str, str]
) -> None:
    opening = event("content_block_start", index=0, content_block=block)
    out, evidence = relay(start(), opening, delta(0, *part), stop(0), end("x"), MESSAGE_STOP)
    assert evidence.complete
    assert grammar.read(out)
    first, second = frames_of(out)[1:3]
    assert first["content_block"]["type"] == kind
    assert second["type"] == "content_block_delta"


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("text", {"text": "a"}),
        ("thinking", {"thinking": "a"}),
        ("thinking", {"signature": "s"}),
        ("tool_use", {"partial_json": "{}"}),
    ],
)
def test_a_delta_without_a_type(kind: str, part: dict[str, str]) -> None:
    odd = event("content_block_delta", index=0, delta=part)
    out, _ = relay(start(), block_start(0, kind), odd, stop(0), end("x"), MESSAGE_STOP)
    assert grammar.read(out)
    (written,) = [frame["delta"] for frame in frames_of(out) if frame["type"] == "content_block_delta"]
    assert written.pop("type").removesuffix("_delta") == {"partial_json": "input_json"}.get(
        next(iter(part)), next(iter(part))
    )
    assert written == part


def test_a_delta_that_says_nothing_at_all_is_left_out() -> None:
    seen = repaired(start(), block_start(0), event("content_block_delta", index=0, delta={}), *text_stream("a")[2:])
    assert seen.text == "a"


# --- starts ----------------------------------------------------------------------------------------------


def test_an_opaque_block_whose_start_had_to_wait_keeps_its_deltas() -> None:
    """It starts while another is open, so it goes out whole when it ends."""
    odd = block_start(1, "server_tool_use", id="s", name="web_search", input={})
    frames = [start(), block_start(0), delta(0, "text", "a"), odd, delta(1, "json", '{"q":1}'), stop(1), end("x")]
    out, _ = relay(*frames, MESSAGE_STOP)
    kinds = [(frame["type"], frame.get("index")) for frame in frames_of(out)[1:-2]]
    assert kinds[2:] == [("content_block_stop", 0), ("content_block_start", 1), ("content_block_stop", 1)]
    assert frames_of(out)[4]["content_block"]["input"] == {"q": 1}


def test_an_opaque_block_that_is_never_closed_starts_once() -> None:
    odd = block_start(0, "server_tool_use", id="s", name="web_search", input={})
    frames = [start(), odd, delta(0, "json", '{"q":1}'), block_start(1), delta(1, "text", "a"), stop(1), end("x")]
    out, _ = relay(*frames, MESSAGE_STOP)
    assert [frame["index"] for frame in frames_of(out) if frame["type"] == "content_block_start"] == [0, 1]
    assert [frame["index"] for frame in frames_of(out) if frame["type"] == "content_block_stop"] == [0, 1]
