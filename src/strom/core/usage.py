"""Token counts, in one meaning for all protocols.

`input_tokens` is the whole prompt, cached parts included (OpenAI's and Ollama's sense). Anthropic's `input_tokens` excludes
cache reads and writes; its codec adds and subtracts them. None means: not reported. Source: streams.md section 6.
"""

from __future__ import annotations

from typing import Literal

import msgspec

UsageSource = Literal["reported", "estimated", "none"]
MOST_TOKENS = 1 << 40
"""More than this no call has. Sums, charges and costs of counts up to it stay numbers that every store can hold."""


class Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    """Everything that was generated, reasoning included."""
    cached_tokens: int | None = None
    """Part of `input_tokens` that was read from a cache."""
    cache_write_tokens: int | None = None
    """Part of `input_tokens` that was written to a cache."""
    reasoning_tokens: int | None = None
    """Part of `output_tokens`."""
    durations: tuple[tuple[str, int], ...] = ()
    """Durations a provider reports, under its own names, in its own units (Ollama: nanoseconds)."""

    def updated(self, later: Usage) -> Usage:
        """The last report wins, field by field; a later report that is silent on a field does not erase it."""
        return Usage(
            later.input_tokens if later.input_tokens is not None else self.input_tokens,
            later.output_tokens if later.output_tokens is not None else self.output_tokens,
            later.cached_tokens if later.cached_tokens is not None else self.cached_tokens,
            later.cache_write_tokens if later.cache_write_tokens is not None else self.cache_write_tokens,
            later.reasoning_tokens if later.reasoning_tokens is not None else self.reasoning_tokens,
            later.durations or self.durations,
        )

    @property
    def total_tokens(self) -> int | None:
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


def token_count(told: float | None) -> int | None:
    """A count as an upstream told it. What cannot be one counts as not told: a negative number would give money back, and one
    without bound would be a cost that is no number."""
    return int(told) if told is not None and 0 <= told <= MOST_TOKENS else None


def estimate_tokens(characters: int) -> int:
    """A rough count from a number of characters: four to a token, at least one for any text."""
    return (characters + 3) // 4
