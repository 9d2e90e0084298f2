"""OpenAI Responses. `store: false` throughout: nothing is left behind at the endpoint.

Source: OpenAI API reference, "Create a model response", "List models", "Error codes".
"""

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
from strom.conformance.dialects.openai_chat import listed_names, openai_error_flaw
from strom.conformance.framing import Framing
from strom.conformance.grammar import openai_responses
from strom.conformance.reading import Object, Reading
from strom.upstreams.settings import ProtocolName


class ResponsesDialect:
    name: ProtocolName = "openai-responses"
    path = "/v1/responses"
    models_path = "/v1/models"
    media_type = "text/event-stream"
    tool_uses: tuple[ToolUse, ...] = ("required", "named", "offered")
    stops = False

    def body(self, model: str, ask: Ask, *, stream: bool) -> Object:
        body: Object = {
            "model": model,
            "input": _items(ask),
            "max_output_tokens": ask.max_tokens,
            "temperature": 0,
            "store": False,
            "stream": stream,
        }
        if ask.tools != "none":
            tool = {"type": "function", "name": TOOL_NAME, "description": TOOL_TEXT, "parameters": TOOL_SCHEMA}
            body["tools"] = [{**tool, "strict": False}]
        if ask.tools == "required":
            body["tool_choice"] = "required"
        if ask.tools == "named":
            body["tool_choice"] = {"type": "function", "name": TOOL_NAME}
        return body

    def judge_stream(self, framing: Framing, ask: Ask) -> Reading:
        return openai_responses.StreamJudge().read(framing)

    def judge_reply(self, body: Object) -> Reading:
        return openai_responses.judge_reply(body)

    def mistaken(self, model: str, mistake: Mistake) -> Object:
        body = self.body(NO_SUCH_MODEL if mistake == "model" else model, Ask(max_tokens=16), stream=True)
        if mistake == "fields":
            del body["input"]
        if mistake == "types":
            body["input"] = 5
        return body

    def error_flaw(self, body: Object) -> str | None:
        return openai_error_flaw(body)

    def model_names(self, body: Object) -> list[str] | None:
        return listed_names(body)


def _items(ask: Ask) -> list[Object]:
    items: list[Object] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": ask.prompt}]}]
    if ask.call is not None:
        identity, name, arguments = ask.call
        items.append({"type": "function_call", "call_id": identity, "name": name, "arguments": arguments})
        items.append({"type": "function_call_output", "call_id": identity, "output": TOOL_RESULT})
    return items
