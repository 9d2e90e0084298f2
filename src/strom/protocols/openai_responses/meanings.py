"""Finish reasons and token counts between Responses' words and ours.

There is no stop reason: a tool call is status completed with call items, a cut is status incomplete with its reason.
Counts include cached tokens, as ours do. Usage always goes out in full, estimated where nobody reported it: Codex
refuses a partial object, opencode asks again without end when it is null.
Source: protocol-facts.md sections 2.2, 6.1, 6.7; streams.md sections 3 and 6.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.events import Finished
from strom.core.usage import Usage, estimate_tokens, token_count
from strom.protocols.openai_responses.schema import ENCODE, Loose, number, present, read

# --- finish reasons ------------------------------------------------------------------------------

_CUTS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_INCOMPLETE = {
    "length": "max_output_tokens",
    "context_full": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "",
}
_COMPLETED = frozenset(("stop", "stop_sequence", "tool_calls"))


def finished(status: str, reason: str, *, has_calls: bool) -> Finished:
    """What a terminal status says. A reason of incompleteness without a counterpart stays as it is."""
    if status == "incomplete":
        return Finished(_CUTS.get(reason, reason or "incomplete"), raw=reason or status)
    return Finished("tool_calls" if has_calls else "stop", raw=status)


def incomplete_reason(reason: str) -> str | None:
    """None: the reply is completed. Else why it is incomplete, "" when this protocol has no word for it."""
    if reason in _COMPLETED:
        return None
    return _INCOMPLETE.get(reason, "" if reason == "incomplete" else reason)


# --- token counts --------------------------------------------------------------------------------


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: Loose = None
    cache_write_tokens: Loose = None
    reasoning_tokens: Loose = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: Loose = None
    output_tokens: Loose = None
    total_tokens: Loose = None
    input_tokens_details: Raw = Raw()
    output_tokens_details: Raw = Raw()


_USAGE = msgspec.json.Decoder(_Usage)
_DETAILS = msgspec.json.Decoder(_Details)


def read_usage(raw: Raw) -> Usage | None:
    """None when nothing is reported, or nothing legible."""
    if not present(raw):
        return None
    try:
        wire = read(_USAGE, raw)
    except ValueError:
        return None
    into, out = _details(wire.input_tokens_details), _details(wire.output_tokens_details)
    usage = Usage(
        token_count(number(wire.input_tokens)),
        token_count(number(wire.output_tokens)),
        token_count(number(into.cached_tokens)),
        token_count(number(into.cache_write_tokens)),
        token_count(number(out.reasoning_tokens)),
    )
    return None if usage == Usage() else usage


def _details(raw: Raw) -> _Details:
    try:
        return read(_DETAILS, raw) if present(raw) else _Details()
    except ValueError:
        return _Details()


def is_full_usage(raw: Raw) -> bool:
    """Whether a client can read it: the three numbers, and details, where there are any, with the number they are for."""
    if not present(raw):
        return False
    try:
        wire = read(_USAGE, raw)
    except ValueError:
        return False
    into, out = wire.input_tokens_details, wire.output_tokens_details
    legible = not present(into) or number(_details(into).cached_tokens) is not None
    legible = legible and (not present(out) or number(_details(out).reasoning_tokens) is not None)
    return legible and None not in (number(wire.input_tokens), number(wire.output_tokens), number(wire.total_tokens))


def usage_json(usage: Usage | None, input_estimate: int, output_characters: int) -> bytes:
    """The full usage object; the details demand numbers, so an unreported part is 0."""
    usage = usage or Usage()
    into = usage.input_tokens if usage.input_tokens is not None else input_estimate
    out = usage.output_tokens if usage.output_tokens is not None else estimate_tokens(output_characters)
    return ENCODE(
        {
            "input_tokens": into,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens or 0,
                "cache_write_tokens": usage.cache_write_tokens or 0,
            },
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
            "total_tokens": into + out,
        }
    )
