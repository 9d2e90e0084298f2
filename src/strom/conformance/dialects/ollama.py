"""Ollama's own protocol: /api/chat, and /api/generate where a check asks for it. There is no tool_choice.

Source: github.com/ollama/ollama, docs/api.md.
"""

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
from strom.conformance.framing import Framing
from strom.conformance.grammar import ollama
from strom.conformance.reading import Object, Reading, objects_at, text_at
from strom.upstreams.settings import ProtocolName


class OllamaDialect:
    name: ProtocolName = "ollama"
    path = "/api/chat"
    models_path = "/api/tags"
    media_type = "application/x-ndjson"
    tool_uses: tuple[ToolUse, ...] = ("offered",)
    stops = True

    def body(self, model: str, ask: Ask, *, stream: bool) -> Object:
        options: Object = {"num_predict": ask.max_tokens, "temperature": 0}
        if ask.stop is not None:
            options["stop"] = [ask.stop]
        body: Object = {"model": model, "messages": _messages(ask), "options": options}
        if not stream:
            body["stream"] = False  # streaming is the default, and asked for by silence
        if ask.tools != "none":
            function = {"name": TOOL_NAME, "description": TOOL_TEXT, "parameters": TOOL_SCHEMA}
            body["tools"] = [{"type": "function", "function": function}]
        return body

    def judge_stream(self, framing: Framing, ask: Ask) -> Reading:
        return ollama.StreamJudge().read(framing)

    def judge_reply(self, body: Object) -> Reading:
        return ollama.judge_reply(body)

    def mistaken(self, model: str, mistake: Mistake) -> Object:
        """Without messages a model is only loaded: the field that must be there is the model."""
        body = self.body(NO_SUCH_MODEL if mistake == "model" else model, Ask(max_tokens=16), stream=True)
        if mistake == "fields":
            del body["model"]
        if mistake == "types":
            body["messages"] = 5
        return body

    def error_flaw(self, body: Object) -> str | None:
        """`{"error": "text"}`."""
        return None if text_at(body, "error") else "error is no text"

    def model_names(self, body: Object) -> list[str] | None:
        if not isinstance(body.get("models"), list):
            return None
        named = [text_at(item, "name") or text_at(item, "model") for item in objects_at(body, "models")]
        return [name for name in named if name]


def _messages(ask: Ask) -> list[Object]:
    messages: list[Object] = [{"role": "user", "content": ask.prompt}]
    if ask.call is not None:
        identity, name, arguments = ask.call
        function = {"name": name, "arguments": json.loads(arguments or "{}")}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": identity, "function": function}]})
        messages.append({"role": "tool", "tool_name": name, "tool_call_id": identity, "content": TOOL_RESULT})
    return messages
