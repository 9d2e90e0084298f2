"""Anthropic Messages. Source: docs.claude.com, "Messages", "List Models", "Errors"."""

from __future__ import annotations

import json

from strom.conformance.dialects.dialect import (
    NO_SUCH_MODEL,
    TOOL_NAME,
    TOOL_RESULT,
    TOOL_SCHEMA,
    TOOL_TEXT,
    Ask,
    Mistake,
    ToolUse,
)
from strom.conformance.dialects.openai_chat import listed_names
from strom.conformance.framing import Framing
from strom.conformance.grammar import anthropic
from strom.conformance.reading import Object, Reading, object_at, text_at
from strom.upstreams.settings import ProtocolName


class AnthropicDialect:
    name: ProtocolName = "anthropic"
    path = "/v1/messages"
    models_path = "/v1/models"
    media_type = "text/event-stream"
    tool_uses: tuple[ToolUse, ...] = ("required", "named", "offered")
    stops = True

    def body(self, model: str, ask: Ask, *, stream: bool) -> Object:
        body: Object = {
            "model": model,
            "messages": _messages(ask),
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "stream": stream,
        }
        if ask.stop is not None:
            body["stop_sequences"] = [ask.stop]
        if ask.tools != "none":
            body["tools"] = [{"name": TOOL_NAME, "description": TOOL_TEXT, "input_schema": TOOL_SCHEMA}]
        if ask.tools == "required":
            body["tool_choice"] = {"type": "any"}
        if ask.tools == "named":
            body["tool_choice"] = {"type": "tool", "name": TOOL_NAME}
        return body

    def judge_stream(self, framing: Framing, ask: Ask) -> Reading:
        return anthropic.StreamJudge().read(framing)

    def judge_reply(self, body: Object) -> Reading:
        return anthropic.judge_reply(body)

    def mistaken(self, model: str, mistake: Mistake) -> Object:
        body = self.body(NO_SUCH_MODEL if mistake == "model" else model, Ask(max_tokens=16), stream=True)
        if mistake == "fields":
            del body["messages"]
        if mistake == "types":
            body["messages"] = 5
        return body

    def error_flaw(self, body: Object) -> str | None:
        """`{"type": "error", "error": {"type", "message"}}`."""
        if body.get("type") != "error":
            return "type is not error"
        error = object_at(body, "error")
        missing = [name for name in ("type", "message") if not text_at(error, name)]
        return f"error.{missing[0]} is no text" if missing else None

    def model_names(self, body: Object) -> list[str] | None:
        return listed_names(body)


def _messages(ask: Ask) -> list[Object]:
    messages: list[Object] = [{"role": "user", "content": ask.prompt}]
    if ask.call is not None:
        identity, name, arguments = ask.call
        use = {"type": "tool_use", "id": identity, "name": name, "input": json.loads(arguments or "{}")}
        result = {"type": "tool_result", "tool_use_id": identity, "content": TOOL_RESULT}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages
