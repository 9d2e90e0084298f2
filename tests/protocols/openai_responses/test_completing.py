"""A relayed stream whose events are only a part of what clients need: the rest is put in, and nothing twice."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from strom.core.errors import InvalidStreamEvent
from strom.core.events import Completed
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import CODEC
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import (
    added,
    arguments,
    call,
    context,
    created,
    delta,
    done,
    ended,
    event,
    message,
    numbered,
    part_added,
    part_done,
    plain,
    response,
    summary,
    text_part,
)
from tests.protocols.openai_responses.official import read_stream
from tests.protocols.openai_responses.test_relay import relay_frames, split_frames

THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x",
}
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c9", "name": "g", "input": "ls", "status": "completed"}
OUTPUT: list[dict[str, Any]] = [THOUGHT, message("msg_1", text_part("Hi there")), call("fc_1", '{"a":1}'), CUSTOM]


def begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": "", "input": ""}
    return {**item, **{name: value for name, value in empty.items() if name in item}}


def of_item(place: int, item: dict[str, Any]) -> list[bytes]:
    """The events between an item's added and its done."""
    at = {"output_index": place, "item_id": item["id"]}
    match item["type"]:
        case "message":
            text = item["content"][0]["text"]
            whole = event("response.output_text.done", **at, content_index=0, text=text, logprobs=[])
            pieces = [delta(place, text[:3]), delta(place, text[3:])]
            return [part_added(place), *pieces, whole, part_done(place, text)]
        case "reasoning":
            part = {"type": "summary_text", "text": "hm"}
            opening = event("response.reasoning_summary_part.added", **at, summary_index=0, part={**part, "text": ""})
            whole = event("response.reasoning_summary_text.done", **at, summary_index=0, text="hm")
            closing = event("response.reasoning_summary_part.done", **at, summary_index=0, part=part)
            return [opening, summary(place, "hm"), whole, closing]
        case "function_call":
            text = item["arguments"]
            return [arguments(place, text), event("response.function_call_arguments.done", **at, arguments=text)]
    text = item["input"]
    return [
        event("response.custom_tool_call_input.delta", **at, delta=text),
        event("response.custom_tool_call_input.done", **at, input=text),
    ]


def stream(*, items: bool = True, inner: bool = True, output: bool = True) -> list[bytes]:
    """A stream of all four kinds of items, of which some layers are left out."""
    frames = [created()]
    for place, item in enumerate(OUTPUT):
        frames += [added(place, begun(item))] if items else []
        frames += of_item(place, item) if inner else []
        frames += [done(place, item)] if items else []
    return [*frames, ended(output=OUTPUT if output else [])]


def judge(*frames: bytes) -> grammar.Seen:
    """Read by the rules for streams that are relayed, and by the SDK; items may overlap where they are known late."""
    out, relay = relay_frames(*frames)
    assert relay.evidence.complete
    seen = grammar.read(out, strict=False)
    final, kinds = read_stream(out)
    assert kinds.count("response.output_item.done") == len(seen.items) == len(final.output)
    return seen


def test_a_legal_stream_passes_byte_for_byte() -> None:
    frames = split_frames(numbered(*stream()))
    assert relay_frames(*frames, block=lambda: None)[0] == b"".join(frames)


@pytest.mark.parametrize(("items", "inner", "output"), list(itertools.product([True, False], repeat=3))[:-1])
def test_layers_that_are_missing(items: bool, inner: bool, output: bool) -> None:
    if not items and not output:
        return  # nobody ever names the calls: see below
    seen = judge(*stream(items=items, inner=inner, output=output))
    assert seen.text("output_text") == "Hi there"
    assert seen.text("reasoning_summary_text") == "hm"
    assert seen.calls == [("call_fc_1", "f", '{"a":1}'), ("c9", "g", "ls")]
    assert sorted(item.type for item in seen.items) == sorted(item["type"] for item in OUTPUT)


@pytest.mark.parametrize("lost", range(1, len(stream()) - 1))
def test_any_single_event_that_is_missing(lost: int) -> None:
    frames = stream()
    kind = json.loads(frames[lost].partition(b"data: ")[2])["type"]
    if kind.endswith("delta") and "output_text" in kind:
        return  # a text that was cut into pieces and has lost one
    del frames[lost]
    seen = judge(*frames)
    assert seen.text("output_text") == "Hi there"
    assert seen.calls == [("call_fc_1", "f", '{"a":1}'), ("c9", "g", "ls")]


def test_deltas_alone_make_an_item_of_their_own() -> None:
    seen = judge(created(), *(delta(0, word) for word in ("Hi", " ", "there")), ended())
    assert seen.response["output"][0]["content"][0]["text"] == "Hi there"


def test_the_quick_way_is_remembered_as_well() -> None:
    frames = [created(), added(0, message()), part_added(0), *(delta(0, word) for word in "abcdef"), ended()]
    assert judge(*split_frames(numbered(*frames))).response["output"][0]["content"][0]["text"] == "abcdef"


def test_deltas_leave_at_once() -> None:
    relay = CODEC.relay(context(), Quirks())
    relay.feed(created())
    assert b'"delta":"Hi"' in relay.feed(delta(0, "Hi"))


def test_a_call_waits_for_its_name() -> None:
    relay = CODEC.relay(context(), Quirks())
    assert relay.feed(created())
    assert relay.feed(arguments(0, '{"a"')) + relay.feed(arguments(0, ":1}")) == b""
    out = relay.feed(done(0, call("fc_1", '{"a":1}')))
    kinds = [block.partition(b"\n")[0].rpartition(b".")[2] for block in out.split(b"\n\n")[:-1]]
    assert kinds == [b"added", b"delta", b"done", b"done"]


def test_a_call_that_nobody_names_is_an_error() -> None:
    out, relay = relay_frames(created(), arguments(0, "{}"), ended())
    assert isinstance(relay.evidence.error, InvalidStreamEvent)
    assert not relay.evidence.complete
    assert b"arguments" not in out
    assert b"response.completed" not in out


def test_a_refusal_that_comes_whole() -> None:
    item = message("msg_1", {"type": "refusal", "refusal": "No."})
    assert judge(created(), done(0, item), ended(output=[item])).text("refusal") == "No."


def test_an_item_only_this_protocol_knows() -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
    assert judge(created(), ended(output=[item])).items[0].done == item


def test_of_summary_and_full_text_one_is_enough() -> None:
    item = {**THOUGHT, "content": [{"type": "reasoning_text", "text": "long"}]}
    frames = [created(), added(0, {**begun(item)}), *of_item(0, THOUGHT), done(0, item), ended(output=[item])]
    out, _ = relay_frames(*frames)
    assert b"reasoning_text.delta" not in out


def test_items_without_ids() -> None:
    nameless = {name: value for name, value in OUTPUT[1].items() if name != "id"}
    out, relay = relay_frames(created(), ended(output=[nameless]))
    assert relay.evidence.complete
    assert b'"item_id":"msg_r1_0"' in out


# --- calls without arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("with_done", [True, False])
def test_a_call_without_arguments(with_done: bool) -> None:
    empty = call("fc_1", "", status="completed")
    said = event("response.function_call_arguments.done", output_index=0, item_id="fc_1", arguments="")
    frames = [created(), added(0, empty), *([said] if with_done else []), done(0, empty), ended(output=[empty])]
    seen = judge(*frames)
    assert seen.calls == [("call_fc_1", "f", "{}")]
    assert seen.response["output"][0]["arguments"] == "{}"
    assert seen.types.count("response.function_call_arguments.done") == 1


def test_arguments_that_came_in_deltas_alone() -> None:
    empty = call("fc_1", "", status="completed")
    said = event("response.function_call_arguments.done", output_index=0, item_id="fc_1", arguments="")
    frames = [created(), added(0, empty), arguments(0, '{"a":1}'), said, done(0, empty), ended(output=[empty])]
    assert judge(*frames).calls == [("call_fc_1", "f", '{"a":1}')]


def test_a_call_that_was_cut_keeps_its_emptiness() -> None:
    cut = call("fc_1", "", status="incomplete")
    details = {"reason": "max_output_tokens"}
    out, _ = relay_frames(
        created(), added(0, cut), done(0, cut), ended("incomplete", output=[cut], incomplete_details=details)
    )
    assert json.loads(split_frames(out)[-1].partition(b"data: ")[2])["response"]["output"] == [cut]


@pytest.mark.parametrize(("given", "wanted"), [("", "{}"), ('{"a":1}', '{"a":1}')])
def test_whole_replies(given: str, wanted: str) -> None:
    body = json.dumps(response("completed", output=[call("fc_1", given, x_mine=1)], usage=None)).encode()
    events = CODEC.decode_reply(body, Quirks())
    assert isinstance(events[-1], Completed)
    (item,) = json.loads(CODEC.relay_reply(body, context(), events))["output"]
    assert (item["arguments"], item["x_mine"]) == (wanted, 1)


def test_cuts_do_not_matter() -> None:
    for layers in ({}, {"items": False}, {"inner": False}):
        frames = stream(**layers)
        assert relay_frames(*frames)[0] == relay_frames(b"".join(frames))[0]
        whole = b"".join(frames)
        assert relay_frames(*(whole[at : at + 97] for at in range(0, len(whole), 97)))[0] == relay_frames(whole)[0]


def test_plain_streams_are_the_measure() -> None:
    assert judge(*plain()).text("output_text") == "Hi there"
