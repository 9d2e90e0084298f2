"""Rate-limit headers in a client's own protocol, from what stands in the buckets right after a decision.

Shown are the key's limits; where it has none of a kind, the model's, then those of all calls. Instants and durations tell when
the bucket is full again. Ollama knows no such headers.

Source: protocol-facts.md sections 1.4 (OpenAI: `x-ratelimit-*`, durations like `6m0s`, `120ms`) and 3.4 (Anthropic:
`anthropic-ratelimit-*`, RFC 3339).
"""

from __future__ import annotations

from datetime import UTC, datetime

from strom.shared.limiter import Reading, Scope, full_ms, remaining

Headers = list[tuple[bytes, bytes]]


def limit_headers(protocol: str, scopes: tuple[Scope, ...], readings: tuple[Reading, ...], now: float) -> Headers:
    """`now`: Unix seconds."""
    headers: Headers = []
    requests_told = tokens_told = False
    for scope, (requests, tokens) in zip(scopes, readings, strict=False):
        if scope.requests and not requests_told:
            requests_told = True
            headers += _told(protocol, b"requests", scope.requests, requests, now)
        if scope.tokens and not tokens_told:
            tokens_told = True
            headers += _told(protocol, b"tokens", scope.tokens, tokens, now)
    return headers


def _told(protocol: str, kind: bytes, limit: int, used: int, now: float) -> Headers:
    left, full = b"%d" % remaining(used, limit), full_ms(used, limit)
    match protocol:
        case "anthropic":
            name = b"anthropic-ratelimit-" + kind
            instant = datetime.fromtimestamp(now + full / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
            return [(name + b"-limit", b"%d" % limit), (name + b"-remaining", left), (name + b"-reset", instant)]
        case "ollama":
            return []
        case _:
            return [
                (b"x-ratelimit-limit-" + kind, b"%d" % limit),
                (b"x-ratelimit-remaining-" + kind, left),
                (b"x-ratelimit-reset-" + kind, duration(full)),
            ]


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
