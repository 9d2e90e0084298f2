"""Base URLs as people write them, and the request targets that follow from them.

    http://host:8081          + /v1/chat/completions → /v1/chat/completions
    http://host:8081/v1       + /v1/chat/completions → /v1/chat/completions
    …/v1beta/openai           + /v1/chat/completions → /v1beta/openai/chat/completions
    http://host:11434/v1      + /api/chat            → /api/chat
    …/openai/v1?api-version=x + /v1/responses        → /openai/v1/responses?api-version=x

A base path that names a version anywhere (or an Azure deployment) is complete, and the /v1 of the codec's path falls away;
any other base path is a prefix. Paths outside /v1 (/api/chat, /health, /tokenize) go below the base without its trailing
/v1 or /api. Source: product.md sections 1 and 4; ai.google.dev, "OpenAI compatibility"; learn.microsoft.com, "Azure OpenAI
REST API reference" (deployments).
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from strom.core.errors import ConfigError
from strom.transport.types import Origin

_VERSION = re.compile(r"/(v\d+[a-z0-9]*|deployments)(?=/|$)")
_ENDPOINT = re.compile(
    r"(/chat/completions|/api/(chat|generate|tags)|(?<=/v1)/(completions|responses|messages|embeddings|models))$"
)
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~-._"
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


class BaseUrl(msgspec.Struct, frozen=True):
    """Where an upstream is. `path` has no trailing slash; `query` no question mark."""

    origin: Origin
    path: str = ""
    query: str = ""
    versioned: bool = True
    """False: this upstream's endpoints have no /v1, although `path` names no version."""

    def target(self, codec_path: str) -> str:
        """Path and query to ask for, when a codec says `/v1/messages`, `/api/chat` or the like."""
        path, _, query = codec_path.partition("?")
        joined = "&".join(part for part in (self.query, query) if part)
        return f"{self._join(path)}?{joined}" if joined else self._join(path)

    def _join(self, path: str) -> str:
        if path != "/v1" and not path.startswith("/v1/"):
            return re.sub(r"/(v1|api)$", "", self.path) + path
        if not self.versioned or _VERSION.search(self.path):
            return (self.path + path[len("/v1") :]) or "/"
        return self.path + path

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.origin.scheme}://{self.origin.authority.decode()}{self.path}{query}"


def parse_base_url(text: str, *, versioned: bool = True) -> BaseUrl:
    """Raises ConfigError, whose message says what is wrong and never repeats credentials."""
    if _UNPRINTABLE.search(text):
        raise ConfigError("a URL holds no spaces and no control characters")
    parts, port = _split(text)
    if parts.scheme not in ("http", "https"):
        raise ConfigError("expected a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("credentials do not belong in a URL: name the variable that holds the key in api_key_env")
    if not parts.hostname:
        raise ConfigError("the URL names no host")
    if parts.fragment:
        raise ConfigError("a base URL has no fragment (#…)")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    origin = Origin(scheme, _ascii_host(parts.hostname), port or (443 if scheme == "https" else 80))
    return BaseUrl(origin, _clean_path(parts.path), quote(parts.query, safe=_SAFE_IN_PATH + "?"), versioned)


def _split(text: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        # What the library says of a host may quote a password that stands before it.
        what = (
            "port out of range or no number"
            if str(error).startswith("Port ")
            else "its host is no name and no IPv4 or IPv6 address"
        )
        raise ConfigError(f"no valid URL: {what}") from None
    if port == 0:
        raise ConfigError("no valid URL: port out of range or no number")
    return parts, port


def _ascii_host(host: str) -> str:
    try:
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        ascii_host = ""
    if not _HOST.fullmatch(ascii_host):
        raise ConfigError("the host's name is no valid domain name or address")
    return ascii_host


def _clean_path(path: str) -> str:
    cleaned = quote(re.sub(r"/{2,}", "/", path).rstrip("/"), safe=_SAFE_IN_PATH)
    endpoint = _ENDPOINT.search(cleaned)
    if endpoint:
        raise ConfigError(f"expected the base URL only: leave out {endpoint[0]}")
    return cleaned
