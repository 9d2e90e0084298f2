"""Removes secrets from what is about to be written.

Headers: of a request only those that matter to a model server are kept, credentials as `***`; of a response cookies and
account names are masked. Query strings: the values of key parameters. Bodies: the caller's own credentials wherever they
stand, keys of known shapes, and the values of members that are named like a secret. A body keeps its length: what is masked
becomes as many `*`, so that offsets and reads stay what they were.
Sources of the shapes: the providers' own key formats as their consoles issue them (OpenAI `sk-`, Anthropic `sk-ant-`,
Google `AIza`, Hugging Face `hf_`, Groq `gsk_`, xAI `xai-`, Perplexity `pplx-`, GitHub `ghp_`, AWS `AKIA`, Slack `xox`, JWT).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from strom.replay.recording import Fields

MASK = "***"
CREDENTIALS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-auth-token"}
)
_KEPT = frozenset({"accept", "content-type", "user-agent", "openai-beta", "x-app"})
_KEPT_PREFIXES = ("anthropic-", "x-stainless-", "x-strom-")
_MASKED_IN_RESPONSES = frozenset(
    {"set-cookie", "openai-organization", "openai-project", "anthropic-organization-id", "www-authenticate"}
)
_KEY_PARAMETERS = re.compile(r"(?i)(?<![^?&])([^=&]*(?:key|token|secret|signature|sig|password|code)[^=&]*=)[^&]*")
_SHAPES = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:"
    rb"sk-[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}"
    rb"|pplx-[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    rb"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    rb")"
)
_BEARER = re.compile(rb"(?i)(?<=bearer )[A-Za-z0-9._~+/-]{12,}=*")
_MEMBERS = re.compile(
    rb'(?i)("(?:[a-z0-9_-]*(?:api[_-]?key|secret|password|access[_-]?token|refresh[_-]?token)|authorization(?:_token)?'
    rb'|x-api-key|cookie)"\s*:\s*")((?:[^"\\]|\\.)+)'
)
_SHORTEST_SECRET = 6


def credentials_in(headers: Iterable[tuple[str, str]]) -> tuple[bytes, ...]:
    """The bare secrets among request headers, to be searched for in bodies; longest first."""
    found = set()
    for name, value in headers:
        if name in CREDENTIALS:
            secret = value.split(None, 1)[-1] if value.lower().startswith(("bearer ", "basic ")) else value
            if len(secret) >= _SHORTEST_SECRET:
                found.add(secret.encode("latin-1", "replace"))
    return tuple(sorted(found, key=len, reverse=True))


def request_headers(headers: Iterable[tuple[str, str]]) -> Fields:
    kept = []
    for name, value in headers:
        if name in CREDENTIALS:
            kept.append((name, MASK))
        elif name in _KEPT or name.startswith(_KEPT_PREFIXES):
            kept.append((name, text(value)))
    return tuple(kept)


def response_headers(headers: Iterable[tuple[str, str]]) -> Fields:
    return tuple((name, MASK if name in _MASKED_IN_RESPONSES else text(value)) for name, value in headers)


def target(path_and_query: str) -> str:
    path, mark, query = path_and_query.partition("?")
    return path + mark + text(_KEY_PARAMETERS.sub(rf"\g<1>{MASK}", query))


def text(value: str) -> str:
    return body(value.encode("latin-1", "replace"), ()).decode("latin-1")


def body(data: bytes, secrets: tuple[bytes, ...]) -> bytes:
    """The same number of bytes."""
    for secret in secrets:
        data = data.replace(secret, b"*" * len(secret))
    for pattern in (_SHAPES, _BEARER):
        data = pattern.sub(lambda match: b"*" * len(match[0]), data)
    return _MEMBERS.sub(lambda match: match[1] + b"*" * len(match[2]), data)


def pieces(parts: list[bytes], secrets: tuple[bytes, ...]) -> list[bytes]:
    """A body that came in parts: a secret may lie across two of them."""
    whole = body(b"".join(parts), secrets)
    scrubbed, at = [], 0
    for part in parts:
        scrubbed.append(whole[at : at + len(part)])
        at += len(part)
    return scrubbed
