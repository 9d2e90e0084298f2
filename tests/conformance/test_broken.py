"""Every check can fail: one broken rule at a time, and the check that has to notice it.

`CASES` is checked for completeness: a check of the table that no case makes fail is an error.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from strom.conformance.asking import Endpoint
from strom.conformance.checks.table import CHECKS
from strom.conformance.report import Result
from strom.conformance.run import examine
from strom.upstreams.settings import ProtocolName
from strom.upstreams.urls import parse_base_url
from tests.conformance import breakage as b
from tests.conformance.stage import StageClient, play

CHAT: ProtocolName = "openai-chat"
RESPONSES: ProtocolName = "openai-responses"
ANTHROPIC: ProtocolName = "anthropic"
OLLAMA: ProtocolName = "ollama"


class Case(NamedTuple):
    protocol: ProtocolName
    check: str
    breakage: b.Breakage
    words: str


TOOLS = b.both(b.streams, b.asking("get_weather"))
PLAIN_WHOLE = b.both(b.wholes, b.asking("story"))
LIMITED = b.asking(": 16")
STOPPED = b.asking('"valleys"')

SAYS_DONE = b.swap('"status": "completed", "output"', '"status": "done", "output"')
FALSE_PROOF = b.edited(b.both(b.wholes, LIMITED), status="completed", incomplete_details=None)

CASES = (
    Case(CHAT, "stream.status", b.told(b.streams, 500, {"error": {"message": "no", "type": "x"}}), "500: no"),
    Case(CHAT, "stream.status", b.ended(b.streams, "none"), "without an answer"),
    Case(CHAT, "stream.headers", b.headed(b.streams, "content-type", "text/plain"), "text/plain"),
    Case(ANTHROPIC, "stream.headers", b.headed(b.streams, "content-type", None), "missing"),
    Case(
        OLLAMA, "stream.headers", b.headed(b.streams, "content-type", "text/event-stream"), "not application/x-ndjson"
    ),
    Case(CHAT, "stream.framing", b.appended("data: {}\n"), "no blank line"),
    Case(CHAT, "stream.framing", b.swap_once("data: {", "error: {"), "no field of an event"),
    Case(CHAT, "stream.framing", b.swap_once('"choices"', '"choices'), "no JSON object"),
    Case(RESPONSES, "stream.framing", b.swap("event: ", ": "), "no name"),
    Case(RESPONSES, "stream.framing", b.swap_once("event: response.created", "event: x"), "the event x has the type"),
    Case(ANTHROPIC, "stream.framing", b.swap("event: ", ": "), "no name"),
    Case(ANTHROPIC, "stream.framing", b.swap_once("event: message_stop", "event: x"), "the event x has the type"),
    Case(OLLAMA, "stream.framing", b.swap_once("\n", "\n\n"), "blank line"),
    Case(CHAT, "stream.shape", b.swap("chat.completion.chunk", "chat.completion"), "object is not"),
    Case(CHAT, "stream.shape", b.appended('data: {"error": {"message": "down"}}\n\n'), "an error in the stream: down"),
    Case(RESPONSES, "stream.shape", b.swap_once('"delta": "Once"', '"delta": "Twice"'), "differs from its deltas"),
    Case(ANTHROPIC, "stream.shape", b.swap('"type": "message"', '"type": "m"'), "no type message"),
    Case(OLLAMA, "stream.shape", b.swap('"done": false', '"done": 0'), "done is no boolean"),
    Case(RESPONSES, "stream.order", b.without("response.content_part.added"), "outside an open part"),
    Case(RESPONSES, "stream.order", b.without("response.output_item.done"), "while an item is open"),
    Case(RESPONSES, "stream.order", b.swap('"output_index": 0', '"output_index": 1'), "output_index does not rise"),
    Case(ANTHROPIC, "stream.order", b.without("event: content_block_stop"), "while a block is open"),
    Case(ANTHROPIC, "stream.order", b.without("event: content_block_start"), "a block that is not open"),
    Case(ANTHROPIC, "stream.order", b.doubled("event: message_start"), "not first and once"),
    Case(ANTHROPIC, "stream.order", b.swap("text_delta", "thinking_delta"), "thinking_delta in a block of type text"),
    Case(
        CHAT, "stream.role", b.swap('"delta": {"content"', '"delta": {"role": "assistant", "content"'), "more than once"
    ),
    Case(CHAT, "stream.role", b.swap('"role": "assistant", ', ""), "no role"),
    Case(RESPONSES, "stream.role", b.swap('"role": "assistant"', '"role": "user"'), "not assistant"),
    Case(ANTHROPIC, "stream.role", b.swap('"role": "assistant"', '"role": "user"'), "not assistant"),
    Case(OLLAMA, "stream.role", b.swap('"role": "assistant"', '"role": "user"'), "not assistant"),
    Case(CHAT, "stream.constants", b.swap_once('"id": "c-1"', '"id": "c-2"'), "id changes"),
    Case(CHAT, "stream.constants", b.swap('"id": "c-1"', '"id": 1'), "no id that is text"),
    Case(RESPONSES, "stream.constants", b.swap('"sequence_number": 3', '"sequence_number": 9'), "does not count"),
    Case(ANTHROPIC, "stream.constants", b.swap('"id": "msg_1"', '"id": null'), "no id"),
    Case(OLLAMA, "stream.constants", b.swap('"created_at"', '"made_at"'), "no created_at"),
    Case(CHAT, "stream.finish", b.without('"finish_reason": "'), "no finish_reason"),
    Case(CHAT, "stream.finish", b.doubled('"finish_reason": "'), "second reason"),
    Case(
        RESPONSES,
        "stream.finish",
        b.swap('"status": "completed", "output"', '"status": "done", "output"'),
        "status is not completed",
    ),
    Case(ANTHROPIC, "stream.finish", b.without("event: message_delta"), "no message_delta"),
    Case(ANTHROPIC, "stream.finish", b.swap('"stop_reason": "', '"reason": "'), "no stop_reason"),
    Case(OLLAMA, "stream.finish", b.swap('"done_reason"', '"reason"'), "no done_reason"),
    Case(CHAT, "stream.terminator", b.without("[DONE]"), "no [DONE]"),
    Case(CHAT, "stream.terminator", b.doubled("[DONE]"), "after [DONE]"),
    Case(RESPONSES, "stream.terminator", b.without("event: response.completed"), "no terminal event"),
    Case(ANTHROPIC, "stream.terminator", b.without("event: message_stop"), "no message_stop"),
    Case(OLLAMA, "stream.terminator", b.without('"done": true'), "no line with done: true"),
    Case(CHAT, "stream.end", b.ended(b.streams, "cut"), "cut off"),
    Case(OLLAMA, "stream.end", b.ended(b.streams, "hang"), "did not end within 30 s"),
    Case(CHAT, "stream.usage", b.appended('data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'), "not asked for"),
    Case(RESPONSES, "stream.usage", b.swap('"total_tokens"', '"tokens"'), "no usage"),
    Case(ANTHROPIC, "stream.usage", b.swap('"usage"', '"used"'), "message_start has no usage"),
    Case(OLLAMA, "stream.usage", b.swap('"eval_count": ', '"eval_count": -'), "eval_count is no count"),
    Case(CHAT, "stream.usage_asked", b.without('"prompt_tokens"'), "no chunk has usage"),
    Case(CHAT, "stream.usage_asked", b.doubled('"prompt_tokens"'), "more than once"),
    Case(CHAT, "stream.usage_asked", b.swap('"total_tokens": ', '"total_tokens": 9'), "total_tokens is"),
    Case(
        CHAT, "stream.usage_asked", b.told(b.asking("include_usage"), 400, {"error": "no"}), "stream_options is refused"
    ),
    Case(CHAT, "stream.flow", b.delayed(b.streams, 2.0, 0.00005), "came at once"),
    Case(OLLAMA, "generate.stream", b.swap('"response"', '"text"', b.at("/api/generate")), "no response"),
    Case(OLLAMA, "generate.stream", b.told(b.at("/api/generate"), 500, {}), "500"),
    Case(CHAT, "whole.status", b.headed(b.wholes, "content-type", "text/html"), "text/html"),
    Case(OLLAMA, "whole.status", b.appended("x", b.wholes), "no JSON object"),
    Case(CHAT, "whole.shape", b.edited(b.wholes, object="x"), "object is not chat.completion"),
    Case(RESPONSES, "whole.shape", b.edited(b.wholes, created_at=None), "created_at"),
    Case(ANTHROPIC, "whole.shape", b.edited(b.wholes, stop_reason=None), "no stop_reason"),
    Case(OLLAMA, "whole.shape", b.edited(b.wholes, done=False), "done is not true"),
    Case(CHAT, "whole.shape", b.told(b.wholes, 200, {"error": "down"}), "object is not"),
    Case(CHAT, "whole.usage", b.edited(b.wholes, usage=None), "no usage"),
    Case(RESPONSES, "whole.usage", b.swap('"cached_tokens"', '"tokens"', b.wholes), "no cached_tokens"),
    Case(ANTHROPIC, "whole.usage", b.edited(b.wholes, usage={"input_tokens": "1"}), "no usage"),
    Case(OLLAMA, "whole.usage", b.edited(b.wholes, eval_duration=0.5), "eval_duration"),
    Case(CHAT, "whole.agrees", b.swap('"stop"', '"length"', PLAIN_WHOLE), "streamed and with length whole"),
    Case(OLLAMA, "whole.agrees", b.swap('"content": "Once', '"thinking": "Once', PLAIN_WHOLE), "has thinking"),
    Case(ANTHROPIC, "whole.agrees", b.edited(PLAIN_WHOLE, usage={"input_tokens": 1, "output_tokens": 1}), "counts"),
    Case(RESPONSES, "whole.agrees", b.edited(PLAIN_WHOLE, output=[]), "streamed 'Once"),
    Case(CHAT, "length.stream", b.swap('"length"', '"stop"', b.both(b.streams, LIMITED)), "yet the reason is stop"),
    Case(ANTHROPIC, "length.stream", b.swap('"output_tokens": 16', '"output_tokens": 99'), "99 tokens came"),
    Case(
        RESPONSES,
        "length.whole",
        b.edited(b.both(b.wholes, LIMITED), status="completed", incomplete_details=None),
        "reason is completed",
    ),
    Case(CHAT, "stop.sequence", b.swap_once(' seven"', ' seven valleys"', STOPPED), "is part of the text"),
    Case(ANTHROPIC, "stop.sequence", b.swap_once(' seven"', ' seven hills"', STOPPED), "was taken out"),
    Case(OLLAMA, "stop.sequence", b.swap_once(' seven"', ' seven valleys on"', STOPPED), "goes on after"),
    Case(OLLAMA, "stop.sequence", b.told(STOPPED, 500, {"error": "no"}), "500"),
    Case(CHAT, "tools.accepted", b.told(TOOLS, 400, {"error": {"message": "no tools", "type": "x"}}), "no tools"),
    Case(
        CHAT, "tools.choice", b.appended('data: {"error": {"message": "x"}}\n\n', b.asking('"required"}')), "an error"
    ),
    Case(CHAT, "tools.stream", b.swap('"tool_calls": [{"index": 0, ', '"tool_calls": [{', TOOLS), "no index"),
    Case(CHAT, "tools.stream", b.swap('"id": "call_1"', '"id": 5', TOOLS), "no id that is text"),
    Case(
        CHAT,
        "tools.stream",
        b.swap('"finish_reason": "tool_calls"', '"finish_reason": "stop"', TOOLS),
        "reason is stop",
    ),
    Case(RESPONSES, "tools.stream", b.swap('"call_id": "call_1"', '"call_id": null', TOOLS), "call_id"),
    Case(ANTHROPIC, "tools.stream", b.swap('"input": {}', '"input": null', TOOLS), "does not start with input"),
    Case(ANTHROPIC, "tools.stream", b.swap('Paris\\"}', "Paris", TOOLS), "no JSON"),
    Case(OLLAMA, "tools.stream", b.swap('{"city": "Paris"}', '"{}"', TOOLS), "arguments are no object"),
    Case(CHAT, "tools.whole", b.swap('"tool_calls": [', '"calls": [', b.wholes), "no call"),
    Case(OLLAMA, "tools.whole", b.told(b.both(b.wholes, b.asking("get_weather")), 500, {"error": "no"}), "500"),
    Case(
        CHAT,
        "tools.result",
        b.told(b.asking("18 degrees"), 400, {"error": {"message": "no role tool"}}),
        "no role tool",
    ),
    Case(RESPONSES, "tools.result", b.without("response.completed", b.asking("18 degrees")), "no terminal event"),
    Case(
        CHAT, "thinking", b.swap('"content": " roof"', '"reasoning_content": "x", "content": "</think>"'), "a tag of it"
    ),
    Case(CHAT, "error.malformed", b.told(b.refusals, 500, {}), "answered as the server's"),
    Case(RESPONSES, "error.malformed", b.ended(b.refusals, "none"), "without an answer"),
    Case(ANTHROPIC, "error.malformed", b.edited(b.refusals, type=None), "type is not error"),
    Case(OLLAMA, "error.malformed", b.edited(b.refusals, error={"message": "x"}), "error is no text"),
    Case(CHAT, "error.missing_field", b.told(b.refusals, 200, {}), "accepted with 200"),
    Case(
        OLLAMA, "error.missing_field", b.headed(b.refusals, "content-type", "text/plain"), "content-type is text/plain"
    ),
    Case(CHAT, "error.wrong_type", b.edited(b.refusals, error="no"), "error is no object"),
    Case(RESPONSES, "error.wrong_type", b.edited(b.refusals, error={"message": "x"}), "error.type"),
    Case(CHAT, "error.unknown_model", b.appended("<html>", b.refusals), "no JSON object"),
    Case(ANTHROPIC, "error.unknown_model", b.edited(b.refusals, error={"message": "x"}), "error.type is no text"),
    Case(CHAT, "models.list", b.edited(b.at("/v1/models"), data={}), "no list of models"),
    Case(OLLAMA, "models.list", b.told(b.at("/api/tags"), 500, {}), "500"),
    Case(ANTHROPIC, "tokens.count", b.edited(b.at("/v1/messages/count_tokens"), input_tokens=0), "no number above 0"),
    Case(RESPONSES, "tokens.count", b.told(b.at("/v1/responses/input_tokens"), 500, {}), "500"),
    Case(OLLAMA, "ollama.version", b.edited(b.at("/api/version"), version=1), "no text"),
    Case(OLLAMA, "ollama.show", b.edited(b.at("/api/show"), model_info=None), "model_info is missing"),
    Case(OLLAMA, "ollama.show", b.told(b.at("/api/show"), 500, {"error": "x"}), "500: x"),
)
ELSEWHERE = {"stream.compression", "cancel.stream", "cancel.whole"}
"""Checks that are made to fail in test_timing and in the tests of the command."""


def results_of(protocol: ProtocolName, breakage: b.Breakage) -> dict[str, Result]:
    endpoint = Endpoint(StageClient(b.broken(breakage)), parse_base_url("http://127.0.0.1:9"), 30.0)
    report = play(examine(endpoint, (protocol,), "good-1"))
    return {result.check: result for result in report.protocols[0].checks}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.protocol}-{case.check}-{case.words[:20]}")
def test_it_is_noticed(case: Case) -> None:
    result = results_of(case.protocol, case.breakage)[case.check]
    assert result.verdict == "fail", result
    assert case.words in result.detail
    assert result.rule
    assert result.source


def test_every_check_is_made_to_fail() -> None:
    assert {check.name for check in CHECKS} == {case.check for case in CASES} | ELSEWHERE
