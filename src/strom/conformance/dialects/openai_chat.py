"""OpenAI Chat Completions. Source: OpenAI API reference, "Create chat completion", "List models", "Error codes"."""

from __future__ import annotations

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
from strom.conformance.framing import Framing
from strom.conformance.grammar import openai_chat
from strom.conformance.reading import Object, Reading, object_at, objects_at, text_at
from strom.upstreams.settings import ProtocolName


class ChatDialect:
    name: ProtocolName = "openai-chat"
    path = "/v1/chat/completions"
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
        if ask.usage and stream:
            body["stream_options"] = {"include_usage": True}
        if ask.stop is not None:
            body["stop"] = [ask.stop]
        if ask.tools != "none":
            function = {"name": TOOL_NAME, "description": TOOL_TEXT, "parameters": TOOL_SCHEMA}
            body["tools"] = [{"type": "function", "function": function}]
        if ask.tools == "required":
            body["tool_choice"] = "required"
        if ask.tools == "named":
            body["tool_choice"] = {"type": "function", "function": {"name": TOOL_NAME}}
        return body

    def judge_stream(self, framing: Framing, ask: Ask) -> Reading:
        return openai_chat.StreamJudge(usage_asked=ask.usage).read(framing)

    def judge_reply(self, body: Object) -> Reading:
        return openai_chat.judge_reply(body)

    def mistaken(self, model: str, mistake: Mistake) -> Object:
        body = self.body(NO_SUCH_MODEL if mistake == "model" else model, Ask(max_tokens=16), stream=True)
        if mistake == "fields":
            del body["messages"]
        if mistake == "types":
            body["messages"] = 5
        return body

    def error_flaw(self, body: Object) -> str | None:
        return openai_error_flaw(body)

    def model_names(self, body: Object) -> list[str] | None:
        return listed_names(body)


def _messages(ask: Ask) -> list[Object]:
    messages: list[Object] = [{"role": "user", "content": ask.prompt}]
    if ask.call is not None:
        identity, name, arguments = ask.call
        call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": identity, "content": TOOL_RESULT})
    return messages


def openai_error_flaw(body: Object) -> str | None:
    """`{"error": {"message", "type", "param", "code"}}`."""
    if not isinstance(body.get("error"), dict):
        return "error is no object"
    error = object_at(body, "error")
    if not text_at(error, "message"):
        return "error.message is no text"
    return None if text_at(error, "type") else "error.type is no text"


def listed_names(body: Object) -> list[str] | None:
    """`{"data": [{"id"}]}`, as OpenAI and Anthropic list models."""
    if not isinstance(body.get("data"), list):
        return None
    return [text_at(item, "id") for item in objects_at(body, "data") if text_at(item, "id")]
