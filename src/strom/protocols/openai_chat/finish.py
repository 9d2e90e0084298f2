"""Finish reasons between Chat's words and ours. Source: streams.md section 3; protocol-facts.md section 6.1."""

from __future__ import annotations

from strom.core.events import Finished
from strom.protocols.openai_chat.schema import Choice

_FROM_CHAT = {"function_call": "tool_calls"}
_TO_CHAT = {
    "stop_sequence": "stop",
    "pause": "stop",
    "context_full": "length",
    "refusal": "content_filter",
}


def finished(choice: Choice, *, with_calls: bool) -> Finished:
    """What a choice's finish reason says. Unknown words are kept; `stop` with calls means tool_calls, `length` never does."""
    raw = choice.finish_reason or ""
    sequence = choice.stop_reason if isinstance(choice.stop_reason, str) else choice.stopping_word or ""
    if raw != "stop":
        return Finished(_FROM_CHAT.get(raw, raw), raw=raw)
    if with_calls:
        return Finished("tool_calls", raw=raw)
    return Finished("stop_sequence", sequence, raw) if sequence else Finished("stop", raw=raw)


def repaired_reason(reason: str | None, *, with_calls: bool, legacy: bool) -> str | None:
    """The word that must stand instead of an upstream's, None where it may stay: `stop` after a call is none.

    `legacy`: the call came as `function_call`. Source: protocol-facts.md section 0 (12).
    """
    if reason != "stop" or not (with_calls or legacy):
        return None
    return "tool_calls" if with_calls else "function_call"


def chat_reason(reason: str, *, with_calls: bool) -> str:
    """The word a Chat client is told. An unknown word stays: calling it `stop` would make a success of it."""
    word = _TO_CHAT.get(reason, reason)
    return "tool_calls" if word == "stop" and with_calls else word
