"""The official SDKs as readers of what the gateway answered, over transports in memory.

`read` gives what the SDK's user has in hand; `refuses` says whether the SDK raised an error that carries our message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import anthropic
import httpx
import httpx2
import ollama
import openai

from tests.matrix.views import Answer

ERRORS = (openai.APIError, anthropic.APIError, ollama.ResponseError)
_CONTENT_TYPES = {True: "text/event-stream; charset=utf-8", False: "application/json"}
_MESSAGES: Any = [{"role": "user", "content": "hi"}]


class Told(NamedTuple):
    """What reached the SDK's user: text, names of the tools called, and the reason of the end in the protocol's words."""

    text: str
    tools: list[str]
    finish: Any


class Officials:
    """The three clients, each answered with the body of the answer that is read."""

    def __init__(self) -> None:
        self._given: Answer | None = None
        client = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        keys: dict[str, Any] = {"api_key": "k", "max_retries": 0, "http_client": client}
        self.openai = openai.OpenAI(base_url="http://test/v1", **keys)
        self.anthropic = anthropic.Anthropic(base_url="http://test", **keys)
        self.ollama = ollama.Client(transport=httpx.MockTransport(self._answer_ollama))
        self._readers: dict[tuple[str, bool], Callable[[], Told]] = {
            ("openai-chat", True): self._chat_stream,
            ("openai-chat", False): self._chat_whole,
            ("anthropic", True): self._anthropic_stream,
            ("anthropic", False): self._anthropic_whole,
            ("openai-responses", True): self._responses_stream,
            ("openai-responses", False): self._responses_whole,
            ("ollama", True): self._ollama_stream,
            ("ollama", False): self._ollama_whole,
        }

    def read(self, given: Answer) -> Told:
        """Raises one of ERRORS when the SDK does."""
        self._given = given
        return self._readers[given.front, given.streamed]()

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        assert self._given is not None
        kind = _CONTENT_TYPES[self._given.streamed and self._given.status == 200]
        return httpx2.Response(self._given.status, headers={"content-type": kind}, content=self._given.body)

    def _answer_ollama(self, _: httpx.Request) -> httpx.Response:
        assert self._given is not None
        return httpx.Response(self._given.status, content=self._given.body)

    def _chat_stream(self) -> Told:
        if self._given is not None and b'"index":1,' in self._given.body.replace(b": ", b":"):
            return self._chat_chunks()
        with self.openai.chat.completions.stream(
            model="m", messages=_MESSAGES, stream_options={"include_usage": True}
        ) as stream:
            for _ in stream:
                pass
            return _chat(stream.current_completion_snapshot)  # the other property refuses `length`

    def _chat_chunks(self) -> Told:
        """Without the SDK's accumulator, which fails when a choice other than the first begins."""
        told, finish = "", None
        for chunk in self.openai.chat.completions.create(model="m", messages=_MESSAGES, stream=True):
            for choice in chunk.choices:
                if choice.index == 0:
                    told += choice.delta.content or ""
                    finish = choice.finish_reason or finish
        return Told(told, [], finish)

    def _chat_whole(self) -> Told:
        return _chat(self.openai.chat.completions.create(model="m", messages=_MESSAGES))

    def _anthropic_stream(self) -> Told:
        with self.anthropic.messages.stream(model="m", max_tokens=9, messages=_MESSAGES) as stream:
            return _message(stream.get_final_message())

    def _anthropic_whole(self) -> Told:
        return _message(self.anthropic.messages.create(model="m", max_tokens=9, messages=_MESSAGES))

    def _responses_stream(self) -> Told:
        final = None
        with self.openai.responses.stream(model="m", input="hi") as stream:
            for event in stream:
                if event.type in ("response.completed", "response.incomplete"):
                    final = event.response
        assert final is not None, "no terminal event"
        return _response(final)

    def _responses_whole(self) -> Told:
        return _response(self.openai.responses.create(model="m", input="hi"))

    def _ollama_stream(self) -> Told:
        parts = list(self.ollama.chat("m", _MESSAGES, stream=True))
        text = "".join(part.message.content or "" for part in parts)
        tools = [call.function.name for part in parts for call in part.message.tool_calls or ()]
        return Told(text, tools, parts[-1].done_reason)

    def _ollama_whole(self) -> Told:
        reply = self.ollama.chat("m", _MESSAGES)
        tools = [call.function.name for call in reply.message.tool_calls or ()]
        return Told(reply.message.content or "", tools, reply.done_reason)


def _chat(reply: Any) -> Told:
    choice = reply.choices[0]
    tools = [call.function.name for call in choice.message.tool_calls or ()]
    return Told(choice.message.content or "", tools, choice.finish_reason)


def _message(reply: Any) -> Told:
    text = "".join(part.text for part in reply.content if part.type == "text")
    return Told(text, [part.name for part in reply.content if part.type == "tool_use"], reply.stop_reason)


def _response(reply: Any) -> Told:
    tools = [item.name for item in reply.output if item.type == "function_call"]
    details = reply.incomplete_details
    return Told(reply.output_text, tools, (reply.status, details and {"reason": details.reason}))
