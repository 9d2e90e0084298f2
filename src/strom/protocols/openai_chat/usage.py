"""Token counts between Chat's words and ours, and the estimate that stands where Chat demands a number.

Chat's `prompt_tokens` includes cached tokens, as ours do. Source: protocol-facts.md sections 1.2 and 6.7; streams.md section 6.
"""

from __future__ import annotations

import msgspec

from strom.core.usage import Usage, estimate_tokens, token_count
from strom.protocols.openai_chat.schema import CompletionDetails, PromptDetails, UsageReport


class _Sent(msgspec.Struct, omit_defaults=True):
    """Usage as we send it. Chat demands the three numbers; details stand there only when they were reported."""

    prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    completion_tokens: int | msgspec.UnsetType = msgspec.UNSET
    total_tokens: int | msgspec.UnsetType = msgspec.UNSET
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


def to_usage(report: UsageReport) -> Usage:
    prompt = report.prompt_tokens_details or PromptDetails()
    completion = report.completion_tokens_details or CompletionDetails()
    cached = prompt.cached_tokens if prompt.cached_tokens is not None else report.prompt_cache_hit_tokens
    return Usage(
        token_count(report.prompt_tokens),
        token_count(report.completion_tokens),
        token_count(cached),
        token_count(prompt.cache_write_tokens),
        token_count(completion.reasoning_tokens),
    )


def usage_json(usage: Usage | None, input_estimate: int, output_characters: int) -> bytes:
    """The usage object; numbers nobody reported are estimated."""
    usage = usage or Usage()
    prompt = usage.input_tokens if usage.input_tokens is not None else input_estimate
    completion = usage.output_tokens if usage.output_tokens is not None else estimate_tokens(output_characters)
    read = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    details = {name: value for name, value in read.items() if value is not None}
    reasoning = {"reasoning_tokens": usage.reasoning_tokens} if usage.reasoning_tokens is not None else None
    sent = _Sent(prompt, completion, prompt + completion, details or None, reasoning)
    return msgspec.json.encode(sent)
