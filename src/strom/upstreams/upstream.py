"""A provider, ready to be called: where it is, what it speaks, how it is asked, what must never be shown of it.

Built once per provider and shared by all calls; immutable.
"""

from __future__ import annotations

from urllib.parse import quote

from strom.core.errors import ConfigError
from strom.protocols.codec import Quirks
from strom.transport.types import Headers, Origin
from strom.upstreams.rows import UPSTREAMS, Counting
from strom.upstreams.settings import AuthStyle, HealthSettings, ProtocolName, ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.urls import BaseUrl, parse_base_url

_REDACTED = "***"


class Upstream:
    """`auth_headers` hold the key: they go on the wire and nowhere else. Text from this upstream goes through `redact`."""

    __slots__ = (
        "_needles",
        "_targets",
        "auth_headers",
        "base",
        "counting",
        "health",
        "kind",
        "name",
        "protocol",
        "quirks",
        "region",
        "retention",
        "sovereignty_class",
        "timeouts",
    )  # fmt: skip

    def __init__(self, settings: ProviderSettings) -> None:
        row = UPSTREAMS.get(settings.kind)
        if row is None:
            raise ConfigError(f"providers.{settings.name}.kind: unknown kind {settings.kind!r}")
        self.name = settings.name
        self.kind = settings.kind
        self.protocol: ProtocolName = settings.protocol
        """Name of its codec."""
        self.base: BaseUrl = parse_base_url(settings.base_url, versioned=row.versioned)
        self.auth_headers: Headers = auth_headers(settings.auth, settings.api_key)
        self.quirks: Quirks = settings.quirks
        self.timeouts: Timeouts = settings.timeouts
        self.health: HealthSettings = settings.health
        self.region = settings.region
        self.sovereignty_class = settings.sovereignty_class
        self.retention = settings.retention
        self.counting: Counting | None = row.counting
        self._targets: dict[str, str] = {}
        self._needles = _needles(settings.api_key)

    @property
    def origin(self) -> Origin:
        return self.base.origin

    def target(self, codec_path: str) -> str:
        """Path and query for a path in the codec's words. Codecs have few paths: each is worked out once."""
        known = self._targets.get(codec_path)
        if known is None:
            known = self._targets[codec_path] = self.base.target(codec_path)
        return known

    def redact(self, text: str) -> str:
        """The text without this upstream's key, however it was quoted."""
        for needle in self._needles:
            text = text.replace(needle, _REDACTED)
        return text

    def __repr__(self) -> str:
        return f"Upstream({self.name}, {self.protocol} at {self.base})"


def auth_headers(style: AuthStyle, key: Secret | None) -> Headers:
    if key is None:
        return []
    value = key.reveal().encode("latin-1")
    match style:
        case "bearer":
            return [(b"authorization", b"Bearer " + value)]
        case "x-api-key":
            return [(b"x-api-key", value)]
        case "api-key":
            return [(b"api-key", value)]
        case "none":
            return []


def _needles(key: Secret | None) -> tuple[str, ...]:
    if key is None or not key.reveal():
        return ()
    plain = key.reveal()
    return tuple(dict.fromkeys((plain, quote(plain, safe=""), plain.replace("/", r"\/"))))
