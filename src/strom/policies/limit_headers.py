"""Rate-limit headers in a client's own protocol, from what stands in the buckets right after a decision.

Shown are the key's limits; where it has none of a kind, the model's, then those of all calls. Instants and durations tell when
the bucket is full again. Ollama knows no such headers.

Source: protocol-facts.md sections 1.4 (OpenAI: `x-ratelimit-*`, durations like `6m0s`, `120ms`) and 3.4 (Anthropic:
`anthropic-ratelimit-*`, RFC 3339).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache

from strom.shared.limiter import UNIT, Reading, Scope

Headers = list[tuple[bytes, bytes]]


def _names(form: str) -> tuple[tuple[bytes, bytes, bytes], ...]:
    """Names of the limit, what remains, and when the bucket is full: of requests, and of tokens."""
    words = ("limit", "remaining", "reset")
    first, second, third = [form.replace("WORD", word) for word in words]
    return tuple([
        (first.replace("KIND", kind).encode(), second.replace("KIND", kind).encode(), third.replace("KIND", kind).encode())
        for kind in ("requests", "tokens")
    ])  # fmt: skip


_OPENAI = _names("x-ratelimit-WORD-KIND")
_NAMES = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": _names("anthropic-ratelimit-KIND-WORD"),
}


def limit_headers(protocol: str, scopes: tuple[Scope, ...], readings: tuple[Reading, ...], now: float) -> Headers:
    """`now`: Unix seconds. Written for speed: it runs for every call that has limits."""
    headers: Headers = []
    names = _NAMES.get(protocol)
    if names is None:
        return headers
    requests_told = tokens_told = False
    for scope, reading in zip(scopes, readings, strict=False):
        if scope.requests and not requests_told:
            requests_told = True
            _tell(headers, names[0], scope.requests, reading[0], now if names is not _OPENAI else None)
        if scope.tokens and not tokens_told:
            tokens_told = True
            _tell(headers, names[1], scope.tokens, reading[1], now if names is not _OPENAI else None)
    return headers


def _tell(headers: Headers, names: tuple[bytes, bytes, bytes], limit: int, used: int, now: float | None) -> None:
    """`now` None: durations are told, not instants."""
    left, full_ms = limit - -(-used // UNIT), -(-used // limit)
    headers.append((names[0], _digits(limit)))
    headers.append((names[1], b"%d" % left if left > 0 else b"0"))
    headers.append((names[2], duration(full_ms) if now is None else _instant(math.ceil(now + full_ms / 1000))))


@lru_cache(1024)
def _digits(number: int) -> bytes:
    return b"%d" % number


@lru_cache(1024)
def _instant(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


@lru_cache(1024)
def duration(milliseconds: int) -> bytes:
    """As Go writes it: 12ms, 1.5s, 6m0s, 1h0m0s."""
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = (b"%g" % (rest / 1000)) + b"s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return (b"%dh%dm" % (hours, minutes) if hours else b"%dm" % minutes) + seconds
