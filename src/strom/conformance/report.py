"""What a run of checks found. The names here are the names in `strom check --json`: they stay."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec

from strom.upstreams.settings import ProtocolName

Verdict = Literal["pass", "fail", "skip", "note"]
"""note: no rule is broken, but somebody may stumble, or the server cannot do it. skip: could not be judged."""


class Rule(msgspec.Struct, frozen=True):
    """`source`: where the rule is written down, or which client breaks without it."""

    text: str
    source: str


class Finding(msgspec.Struct, frozen=True):
    """What one check says. `detail`: what was seen, in one line."""

    verdict: Verdict
    detail: str


class Result(msgspec.Struct, frozen=True):
    check: str
    verdict: Verdict
    detail: str
    rule: str
    source: str


class Timing(msgspec.Struct, frozen=True):
    """Of one streamed answer, in milliseconds on the client's side. Gaps lie between reads that carry tokens; None: too few."""

    time_to_first_token_ms: float
    request_duration_ms: float
    median_gap_ms: float | None
    longest_gap_ms: float | None
    heartbeats: int


class ProtocolReport(msgspec.Struct, frozen=True):
    """`reason`: why the protocol counts as spoken or not. One that is not spoken has no checks."""

    protocol: ProtocolName
    path: str
    spoken: bool
    reason: str
    checks: tuple[Result, ...] = ()
    timing: Timing | None = None


class Report(msgspec.Struct, frozen=True):
    url: str
    model: str
    protocols: tuple[ProtocolReport, ...]

    @property
    def counts(self) -> dict[Verdict, int]:
        found = Counter(result.verdict for protocol in self.protocols for result in protocol.checks)
        return {"pass": found["pass"], "fail": found["fail"], "skip": found["skip"], "note": found["note"]}

    @property
    def ok(self) -> bool:
        """Some protocol was judged, and no check failed."""
        return self.counts["fail"] == 0 and any(protocol.spoken for protocol in self.protocols)

    def fields(self) -> dict[str, Any]:
        """As plain JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {"url": found.pop("url"), "ok": self.ok, "counts": self.counts, **found}
