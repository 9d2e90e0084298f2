"""What a stream has shown so far: enough for the record, the routing block and the decision whether it is complete.

Kept up by whoever reads the upstream: the observer below on translated streams, the relay of a protocol on relayed ones.
Cheap on purpose: one call per read, a few additions per event.
"""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage

SEALED = "sealed"
"""In `Evidence.foreign`: sealed reasoning, whoever made it. Two protocols have a place in which a client gives it back."""
_NO_NOTES: list[str] = []
_NOTHING_FOREIGN: dict[str, str] = {}
"""Shared by all streams that have shown nothing of the kind, which nearly none does. Never written to."""
_WITH_SEALS = ("anthropic", "openai-responses")


class Evidence:
    """`first_token_kind`: None until a token-bearing frame came (streams.md section 7). `deltas`: token-bearing frames.

    `output_characters` counts text, thinking and arguments. `error`: the terminal failure. `complete`: the proof was seen.
    """

    __slots__ = (
        "complete",
        "continued",
        "deltas",
        "error",
        "finish_assumed",
        "finish_raw",
        "finish_reason",
        "first_token_kind",
        "foreign",
        "model",
        "notes",
        "output_characters",
        "response_id",
        "tool_calls",
        "usage",
    )

    def __init__(self) -> None:
        self.response_id = ""
        self.model = ""
        self.first_token_kind: str | None = None
        self.deltas = 0
        self.output_characters = 0
        self.tool_calls = 0
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.finish_raw = ""
        self.finish_assumed = False
        self.notes = _NO_NOTES
        self.foreign = _NOTHING_FOREIGN
        """What only one protocol knows (blocks of its own tools, citations), and which; or SEALED."""
        self.continued = False
        """An earlier upstream gave the first part: what this one counts is not all."""
        self.complete = False
        self.error: StromError | None = None

    @property
    def ended(self) -> bool:
        return self.complete or self.error is not None

    def lost_to(self, protocol: str) -> list[str]:
        """What of the answer a client of this protocol cannot be given."""
        places = {SEALED: _WITH_SEALS}
        return [what for what, own in self.foreign.items() if protocol not in places.get(own, (own,))]

    def report_usage(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage.updated(usage)

    def observe_text(self, text: str) -> None:
        """One text delta: the short way of `observe`."""
        self.deltas += 1
        self.output_characters += len(text)
        if self.first_token_kind is None:
            self.first_token_kind = "content"  # noqa: S105 - no password

    def observe(self, events: list[Event]) -> None:
        """Take in decoded events, all of one read."""
        for event in events:
            kind = TOKENS.get(type(event))
            if kind is None:
                self._observe_other(event)
                continue
            self.deltas += 1
            self.output_characters += len(event.text)  # type: ignore[union-attr]  # TOKENS lists events with text
            if self.first_token_kind is None:
                self.first_token_kind = kind

    def _observe_other(self, event: Event) -> None:
        match event:
            case UsageReported(usage):
                self.report_usage(usage)
            case Finished():
                self.finish_reason, self.finish_raw = event.reason, event.raw
                self.finish_assumed = event.assumed
            case BlockStarted(_, block):
                self._observe_block(block)
            case SignatureDelta():
                self._find("thinking signature", SEALED)
            case CitationDelta(_, protocol, _):
                self._find("citations", protocol)
            case Started():
                self.response_id, self.model = event.response_id, event.model
            case Noted(what):
                self.notes = self.notes or []  # a list of its own
                self.notes.append(what)
            case Completed():
                self.complete = True
            case Failed(error):
                self.error = error
            case _:
                pass

    def _observe_block(self, block: Block) -> None:
        if block.kind == "tool_call":
            self.tool_calls += 1
        elif block.kind == "opaque":
            self._find(block.name, block.protocol)
        elif block.kind == "redacted_thinking":
            self._find(block.kind, SEALED)

    def _find(self, what: str, owner: str) -> None:
        if not self.foreign:
            self.foreign = {}
        self.foreign[what] = owner


TOKENS: dict[type, str] = {TextDelta: "content", ThinkingDelta: "thinking", ArgumentsDelta: "tool_call"}
