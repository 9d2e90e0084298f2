"""The line below an answer: how it ended, how long it took, how many tokens. What is not known is not shown."""

from __future__ import annotations

from strom.client.evidence import CompletionMetadata, StreamMetrics

SEPARATOR = " · "


def summary(metadata: CompletionMetadata) -> str:
    parts = [metadata.finish_reason, metadata.provider_model, *_times(metadata.timing), *_tokens(metadata)]
    if metadata.cost is not None:
        parts.append(f"{metadata.cost.amount:.4f} {metadata.cost.currency}")
    return SEPARATOR.join(part for part in parts if part)


def timing(metrics: StreamMetrics) -> str:
    return SEPARATOR.join(_times(metrics))


def _times(metrics: StreamMetrics) -> list[str]:
    parts = []
    if metrics.time_to_first_token_ms is not None:
        parts.append(f"first token {_seconds(metrics.time_to_first_token_ms)}")
    if metrics.request_duration_ms is not None:
        parts.append(_seconds(metrics.request_duration_ms))
    return parts


def _tokens(metadata: CompletionMetadata) -> list[str]:
    usage = metadata.usage
    if usage is None:
        return []
    parts = []
    if usage.input_tokens is not None or usage.output_tokens is not None:
        parts.append(f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out tokens")
    first, whole = metadata.timing.time_to_first_token_ms, metadata.timing.request_duration_ms
    if metadata.requests == 1 and usage.output_tokens and first is not None and whole is not None and whole > first:
        parts.append(f"{(usage.output_tokens - 1) * 1000.0 / (whole - first):.1f} tokens/s")
    return parts


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)
