"""Anthropic's counts and stop reasons, and ours.

Anthropic's `input_tokens` excludes what was read from or written to a cache; ours includes it. `output_tokens` of message_start
is a placeholder (1, or 0 in llama.cpp and vLLM) and no report. Source: streams.md sections 3 and 6; protocol-facts.md 6.1, 6.7.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.usage import Usage, token_count
from strom.protocols.anthropic_messages import schema

_USAGE = msgspec.json.Decoder(schema.UsageIn)
_DETAILS = msgspec.json.Decoder(schema.OutputDetails)

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_full",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
}
"""stop_reason → canonical; any other word is kept."""
_STOP_REASONS = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "context_full": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def stop_reason(reason: str, stop_sequence: str, *, has_calls: bool) -> str:
    """Our reason in Anthropic's words; a word without a counterpart becomes the nearest: the turn ended."""
    word = _STOP_REASONS.get(reason, "end_turn")
    if word == "stop_sequence" and not stop_sequence:
        word = "end_turn"
    return "tool_use" if word == "end_turn" and has_calls else word


class UsageMerger:
    """Merges the reports of one stream field by field: they are running totals, the last one wins."""

    __slots__ = ("_cache_read", "_cache_write", "_input", "_output", "_thinking")

    def __init__(self) -> None:
        self._input: int | None = None
        self._output: int | None = None
        self._cache_read: int | None = None
        self._cache_write: int | None = None
        self._thinking: int | None = None

    def merge(self, raw: Raw, *, start: bool = False) -> Usage | None:
        """What is known after this report. None when it says nothing, or nothing legible."""
        usage = read_usage(raw)
        if usage is None:
            return None
        self._input = _later(usage.input_tokens, self._input)
        if not start:
            self._output = _later(usage.output_tokens, self._output)
        self._cache_read = _later(usage.cache_read_input_tokens, self._cache_read)
        self._cache_write = _later(usage.cache_creation_input_tokens, self._cache_write)
        self._thinking = _thinking_tokens(usage, self._thinking)
        return self._total()

    def _total(self) -> Usage:
        whole = None if self._input is None else self._input + (self._cache_read or 0) + (self._cache_write or 0)
        return Usage(whole, self._output, self._cache_read, self._cache_write, self._thinking)


def read_usage(raw: Raw) -> schema.UsageIn | None:
    if not schema.present(raw):
        return None
    try:
        return schema.read(_USAGE, raw)
    except ValueError:
        return None


def _thinking_tokens(usage: schema.UsageIn, before: int | None) -> int | None:
    if not schema.present(usage.output_tokens_details):
        return before
    try:
        found = schema.read(_DETAILS, usage.output_tokens_details).thinking_tokens
    except ValueError:
        return before
    return _later(found, before)


def _later(told: int | None, before: int | None) -> int | None:
    count = token_count(told)
    return before if count is None else count


def usage_out(usage: Usage | None, input_estimate: int, output_estimate: int) -> schema.UsageOut:
    """Our counts in Anthropic's words; where nothing was reported the estimate stands, as the protocol demands integers."""
    usage = usage or Usage()
    cached = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
    return schema.UsageOut(
        input_estimate if usage.input_tokens is None else max(0, usage.input_tokens - cached),
        output_estimate if usage.output_tokens is None else usage.output_tokens,
        usage.cache_write_tokens,
        usage.cached_tokens,
        None if usage.reasoning_tokens is None else schema.OutputDetails(usage.reasoning_tokens),
    )
