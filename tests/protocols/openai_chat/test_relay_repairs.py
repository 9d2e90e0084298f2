"""What a relayed Chat stream or whole reply says of its calls, and the envelope of its later frames."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.events import Completed
from strom.core.messages import Request, Tool
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat import CODEC
from tests.protocols.openai_chat.frames import (
    DONE,
    bare,
    call,
    chunk,
    context,
    legal_relay,
    relay,
    role,
    stop,
    text,
    usage,
)

CALL = [call(index=0, id="c1", type="function", name="f", arguments=""), call(index=0, arguments="{}")]
WHOLE_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chunks(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in out.decode().split("\n\n") if line and line != "data: [DONE]"]


def reasons(out: bytes) -> list[str]:
    found = [choice["finish_reason"] for each in chunks(out) for choice in each["choices"]]
    return [reason for reason in found if reason is not None]


def whole(message: dict[str, Any], reason: str | None = "stop", **choice: Any) -> dict[str, Any]:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason, **choice}]
    numbers = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    base = {"id": "chatcmpl-u", "object": "chat.completion", "created": 1760000000, "model": "m"}
    return {**base, "choices": [{k: v for k, v in choices[0].items() if v is not ...}], "usage": numbers}


def relayed_whole(body: dict[str, Any], **members: Any) -> dict[str, Any]:
    data = json.dumps(body).encode()
    events = CODEC.decode_reply(data, Quirks())
    assert isinstance(events[-1], Completed)
    out: dict[str, Any] = json.loads(CODEC.relay_reply(data, context(**members), events))
    return out


# --- the finish reason -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_stop_after_a_call_is_tool_calls(asked: bool) -> None:
    frames = [role(), *CALL, stop(x_mine=1), *([usage()] if asked else []), DONE]
    seen, relayed = legal_relay(frames, asked=asked)
    assert reasons(relay(frames, asked=asked)[0]) == ["tool_calls"]
    assert (relayed.evidence.finish_reason, relayed.evidence.finish_raw) == ("tool_calls", "stop")
    assert any(each.get("x_mine") == 1 for each in seen.chunks)


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls", "odd"])
def test_other_reasons_stay(reason: str) -> None:
    frames = [role(), *CALL, stop(reason), DONE]
    assert relay(frames)[0] == b"".join(frames)


def test_stop_without_a_call_stays() -> None:
    frames = [role(), text("a"), stop(), DONE]
    assert relay(frames)[0] == b"".join(frames)


def test_a_call_that_shares_the_finish_frame_or_comes_after_it() -> None:
    with_call = chunk({"tool_calls": [{"index": 0, **WHOLE_CALL}]}, "stop")
    assert reasons(relay([role(), with_call, DONE])[0]) == ["tool_calls"]
    late, relayed = relay([role(), stop(), *CALL, DONE])
    assert reasons(late) == ["tool_calls"]
    assert relayed.evidence.finish_reason == "tool_calls"


def test_each_choice_is_judged_by_its_own_calls() -> None:
    called = chunk({"tool_calls": [{"index": 0, **WHOLE_CALL}]}, choice={"index": 1})
    frames = [role(), text("a"), called, stop(), chunk({}, "stop", choice={"index": 1}), DONE]
    out, relayed = relay(frames)
    assert reasons(out) == ["stop", "tool_calls"]
    assert relayed.evidence.finish_reason == "stop"


def test_the_deprecated_call_has_its_own_reason() -> None:
    legacy = {"function_call": {"name": "f", "arguments": "{}"}}
    out, relayed = relay([role(), chunk(legacy), stop(), DONE])
    assert reasons(out) == ["function_call"]
    assert relayed.evidence.finish_reason == "tool_calls"
    assert relayed_whole(whole({"content": None, **legacy}))["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize(("reason", "wanted"), [("stop", "tool_calls"), ("length", "length"), ("odd", "odd")])
def test_whole_replies(reason: str, wanted: str) -> None:
    body = whole({"content": None, "tool_calls": [WHOLE_CALL], "x_mine": 1}, reason)
    out = relayed_whole(body)
    assert out["choices"][0].pop("finish_reason") == wanted
    assert out["choices"][0]["message"] == body["choices"][0]["message"]


# --- arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[""], ["", ""], [None], ["  "]])
def test_a_call_without_arguments_gets_an_empty_object(pieces: list[str | None]) -> None:
    first, *later = [call(index=0, arguments=piece) for piece in pieces]
    first = call(index=0, id="c1", type="function", name="f", arguments=pieces[0])
    out, _ = relay([role(), first, *later, stop("tool_calls"), DONE])
    parts = [part for each in chunks(out) for part in each["choices"][0]["delta"].get("tool_calls", [])]
    assert json.loads("".join(part["function"].get("arguments") or "" for part in parts)) == {}


@pytest.mark.parametrize("arguments", ["", None, "  "])
def test_so_does_one_in_a_whole_reply(arguments: str | None) -> None:
    entry = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    out = relayed_whole(whole({"content": None, "tool_calls": [entry]}, "tool_calls"))
    assert out["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


# --- the envelope ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [None, ..., "soon"])
def test_created_is_the_upstreams_first_where_it_is_missing(lost: Any) -> None:
    frames = [role(), chunk({"content": "a"}, created=lost), chunk({"content": "b"}, created=lost), stop(created=lost)]
    out, _ = relay([*frames, bare(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 1}, created=lost), DONE])
    assert {each["created"] for each in chunks(out)} == {1760000000}


def test_created_that_is_never_told_is_ours() -> None:
    out, _ = relay([chunk({"content": "a"}, created=...), stop(created=...), DONE])
    assert {each["created"] for each in chunks(out)} == {1750000000}


@pytest.mark.parametrize("name", ["id", "model"])
@pytest.mark.parametrize("lost", [None, ...])
def test_id_and_model_that_get_lost(name: str, lost: Any) -> None:
    out, _ = relay([role(), chunk({"content": "a"}, **{name: lost}), stop(**{name: lost}), DONE])
    assert len({each[name] for each in chunks(out)}) == 1
    assert None not in {each[name] for each in chunks(out)}


@pytest.mark.parametrize("lost", [None, ...])
def test_a_choice_without_index_is_the_first(lost: Any) -> None:
    def odd(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": lost, "delta": delta, "finish_reason": reason}
        return bare(choices=[{name: value for name, value in choice.items() if value is not ...}])

    words = [odd({"content": word}) for word in ("a", "b", "c")]
    out, relayed = relay([odd({"role": "assistant"}), *words, odd({}, "stop"), DONE])
    assert [each["choices"][0]["index"] for each in chunks(out)] == [0] * 5
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks(out)) == "abc"
    assert relayed.evidence.output_characters == 3
    assert relayed_whole(whole({"content": "a"}, index=lost))["choices"][0]["index"] == 0


# --- names in pieces -------------------------------------------------------------------------------------

HALF = call(index=0, id="c", type="function", name="edit_ex", arguments="")
MORE = call(index=0, name="isting_file")
ARGUMENTS = call(index=0, arguments="{}")


def calls_told(frames: list[bytes], *tools: str) -> list[Any]:
    asked = Request("openai-chat", "m", (), tools=tuple(Tool(name) for name in tools))
    out, relayed = relay([role(), *frames, stop("tool_calls"), DONE], request=asked)
    assert relayed.evidence.complete
    deltas = [each["choices"][0]["delta"] for each in chunks(out)]
    return [part for delta in deltas for part in delta.get("tool_calls", [])]


def test_a_name_in_pieces_is_told_once_and_whole() -> None:
    """openai-node keeps the last piece, the AI SDK the first: the declared names say that more is to come."""
    opening = {"index": 0, "id": "c", "type": "function", "function": {"name": "edit_existing_file", "arguments": ""}}
    assert calls_told([HALF, MORE, ARGUMENTS], "edit_existing_file", "other") == [
        opening,
        {"index": 0, "function": {"arguments": "{}"}},
    ]
    several = [HALF, call(index=0, name="isting"), call(index=0, name="_file"), ARGUMENTS]
    assert calls_told(several, "edit_existing_file")[0] == opening


def test_the_last_piece_may_bring_arguments() -> None:
    last = call(index=0, name="isting_file", arguments='{"a":1}')
    (told,) = calls_told([HALF, last], "edit_existing_file")
    assert told["function"] == {"name": "edit_existing_file", "arguments": '{"a":1}'}
    assert told["id"] == "c"


def test_a_call_whose_name_stays_half_is_told_with_its_arguments_or_at_the_end() -> None:
    (told,) = calls_told([HALF, ARGUMENTS], "edit_existing_file")
    assert told["function"] == {"name": "edit_ex", "arguments": "{}"}
    (told,) = calls_told([HALF, MORE], "edit_existing_file")[:1]
    assert told["function"]["name"] == "edit_existing_file"
    (told,) = calls_told([HALF], "edit_existing_file")
    assert told["function"] == {"name": "edit_ex", "arguments": "{}"}


@pytest.mark.parametrize("tools", [("edit_ex", "edit_existing_file"), ("other",), ()])
def test_a_name_that_is_whole_or_unknown_waits_for_nothing(tools: tuple[str, ...]) -> None:
    asked = Request("openai-chat", "m", (), tools=tuple(Tool(name) for name in tools))
    frames = [role(), HALF, ARGUMENTS, stop("tool_calls"), DONE]
    assert relay(frames, request=asked)[0] == b"".join(frames)


def test_a_whole_reply_waits_for_no_name() -> None:
    entry = {"id": "c1", "type": "function", "function": {"name": "edit_ex", "arguments": ""}}
    asked = Request("openai-chat", "m", (), tools=(Tool("edit_existing_file"),))
    out = relayed_whole(whole({"content": None, "tool_calls": [entry]}, "tool_calls"), request=asked)
    assert out["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "edit_ex", "arguments": "{}"}


# --- usage of several choices ----------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False])
def test_usage_of_each_choice_alone_is_summed(asked: bool) -> None:
    def second(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return chunk(delta, reason, choice={"index": 1})

    own = [{"prompt_tokens": 33, "completion_tokens": n, "total_tokens": 33 + n} for n in (10, 12)]
    frames = [role(), second({"role": "assistant"}), stop(), second({}, "stop")]
    frames += [bare(choices=[], usage=each) for each in own]
    out, relayed = relay([*frames, DONE], asked=asked, quirks=Quirks(usage_per_choice=True))
    told = [each["usage"] for each in chunks(out) if each.get("usage")]
    assert told == [{"prompt_tokens": 33, "completion_tokens": 22, "total_tokens": 55}]
    assert relayed.evidence.usage == Usage(33, 22)
    last_wins, _ = relay([*frames, DONE], asked=asked)
    assert [each["usage"] for each in chunks(last_wins) if each.get("usage")] == [own[1]]
