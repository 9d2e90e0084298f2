"""The shapes of Ollama's lines and whole replies as they come, and of the requests its clients send.

/api/chat puts its text in `message.content`, /api/generate in `response`; all else is the same, so one shape reads both.
They are as wide as real servers are: what is missing or null is legal, numbers may be floats, an argument object may come as a
JSON string. What does not fit even so is undecodable. A field nobody here reads is not listed: on relay it survives
because the bytes do.
Source: ollama-python 0.6.3, _types.py; ollama api/types.go; protocol-facts.md section 4.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

NAME = "ollama"
NOTHING = Raw()
ENCODER = msgspec.json.Encoder()
Number = int | float | None

# --- replies ---------------------------------------------------------------------------------------


class FunctionIn(msgspec.Struct, gc=False):
    """`arguments`: an object; a JSON string from servers that mix up the protocols."""

    name: str | None = None
    arguments: Raw = NOTHING


class CallIn(msgspec.Struct, gc=False):
    """`id` comes from newer servers only."""

    id: str | int | float | None = None
    function: FunctionIn | None = None


class MessageIn(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[CallIn] | None = None


class Line(msgspec.Struct, gc=False):
    """A line of a stream, or a whole reply. `error` is a string; an object from proxies in front of Ollama."""

    model: str | None = None
    created_at: str | None = None
    message: MessageIn | None = None
    response: str | None = None
    thinking: str | None = None
    tool_calls: list[CallIn] | None = None
    done: bool | None = None
    done_reason: str | None = None
    error: Raw = NOTHING
    total_duration: Number = None
    load_duration: Number = None
    prompt_eval_count: Number = None
    prompt_eval_duration: Number = None
    eval_count: Number = None
    eval_duration: Number = None

    @property
    def known(self) -> bool:
        """Whether it has anything of a line at all."""
        if self.message is not None or self.done is not None or self.response is not None:
            return True
        return self.model is not None or self.created_at is not None


class Ending(msgspec.Struct, gc=False):
    """The least there is to know of a line, when the rest of it has types nobody expects."""

    done: bool | None = None
    done_reason: str | None = None
    error: Raw = NOTHING


CALL = msgspec.json.Decoder(CallIn)
LINE = msgspec.json.Decoder(Line)
ENDING = msgspec.json.Decoder(Ending)
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
"""Nanoseconds."""
_NO_ERROR = (b"", b"null", b'""', b"false")


def present(raw: Raw) -> bool:
    """`"error": null` is no error (streams.md section 10), nor is "": the official clients ask for truth."""
    return bytes(raw) not in _NO_ERROR


# --- requests --------------------------------------------------------------------------------------


class TypedIn(msgspec.Struct, frozen=True):
    type: str | None = None


class FunctionToolIn(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: Raw = NOTHING


class ToolIn(msgspec.Struct, frozen=True):
    """`type` may be missing: the Python client's default is function."""

    type: str | None = "function"
    function: FunctionToolIn | None = None


class HistoryMessageIn(msgspec.Struct, frozen=True):
    """`name` is what clients older than `tool_name` called it."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[CallIn] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    name: str | None = None


class OptionsIn(msgspec.Struct, frozen=True):
    """The options with a canonical place; Ollama takes floats for its integers."""

    num_predict: Number = None
    temperature: float | None = None
    top_k: Number = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Number = None
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class CommonIn(msgspec.Struct, frozen=True):
    """What /api/chat and /api/generate have in common."""

    model: str = ""
    format: Raw = NOTHING
    options: OptionsIn | None = None
    stream: bool | None = None
    think: bool | str | None = None
    keep_alive: Raw = NOTHING
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ChatIn(CommonIn, frozen=True):
    messages: list[HistoryMessageIn] | None = None
    tools: list[Raw] | None = None


class GenerateIn(CommonIn, frozen=True):
    prompt: str | None = None
    system: str | None = None
    suffix: str | None = None
    images: list[str] | None = None
