"""The canonical stream: what every upstream stream is decoded to and every client stream is encoded from.

Order (checked by `order.py`): `Started`, then blocks, then `UsageReported`/`Finished` in any number, then exactly one
terminal event, `Completed` or `Failed`, then nothing. A block is `BlockStarted`, its deltas, `BlockEnded`, all with the
block's index; indices rise by one in order of starting. Text and thinking blocks never overlap anything; tool blocks may
overlap each other when the upstream interleaves its calls (`sequencer.py` straightens them for protocols that cannot).
Nothing infers which block a delta belongs to. Empty deltas do not occur.

`Completed` is proof: it is emitted only when the upstream's own terminator (and what it requires) was seen, see
streams.md section 1. An early but proven end (`length`) is `Finished("length")` and `Completed`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.core.errors import StromError
from strom.core.usage import Usage

BlockKind = Literal["text", "thinking", "redacted_thinking", "tool_call", "refusal", "opaque"]


class Block(msgspec.Struct, frozen=True, gc=False):
    """What is known of a block at its start.

    tool_call: `call_id` and `name` are never empty (a missing id is invented by the decoder, once). `custom`: a free-text tool
    (Responses `custom_tool_call`): its deltas are raw text, no JSON. redacted_thinking: `data` is the encrypted text.
    opaque: a block only `protocol` knows (server tools and the like), `data` is its JSON; it has no deltas.
    `item_id`: the upstream's own id of the item, where it has one. `namespace`: the group the tool was declared in.
    """

    kind: BlockKind
    call_id: str = ""
    name: str = ""
    custom: bool = False
    data: str = ""
    protocol: str = ""
    item_id: str = ""
    namespace: str = ""


class Started(msgspec.Struct, frozen=True, gc=False):
    """The upstream began to answer. Empty strings and 0 where it does not say."""

    response_id: str = ""
    model: str = ""
    created: int = 0
    """Unix seconds."""


class BlockStarted(msgspec.Struct, frozen=True, gc=False):
    index: int
    block: Block


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """Text of a text, refusal block: never empty."""

    index: int
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    index: int
    text: str


class SignatureDelta(msgspec.Struct, frozen=True, gc=False):
    """Proof of a thinking block, readable only by the `protocol`'s provider that made it."""

    index: int
    signature: str
    protocol: str = "anthropic"


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of a tool call's arguments (JSON text; raw text for custom tools): never empty."""

    index: int
    text: str


class CitationDelta(msgspec.Struct, frozen=True, gc=False):
    """A citation or annotation of a text block, as JSON in the words of `protocol`."""

    index: int
    protocol: str
    data: str


class BlockEnded(msgspec.Struct, frozen=True, gc=False):
    """`invalid` says why a tool call's arguments are no JSON; the call's fragments were still passed on as they came."""

    index: int
    invalid: str = ""


class UsageReported(msgspec.Struct, frozen=True, gc=False):
    """A running total; later ones replace earlier ones field by field."""

    usage: Usage


FinishReason = Literal[
    "stop",
    "stop_sequence",
    "length",
    "context_full",
    "tool_calls",
    "content_filter",
    "refusal",
    "pause",
]
KNOWN_REASONS: frozenset[str] = frozenset(
    ("stop", "stop_sequence", "length", "context_full", "tool_calls", "content_filter", "refusal", "pause")
)


class Finished(msgspec.Struct, frozen=True, gc=False):
    """Why the model stopped. The last one wins. `reason` is one of `KNOWN_REASONS` or the upstream's own word, kept.

    `raw` is the upstream's own word, always. `assumed`: the provider never says (quirk finish_reason_required = false).
    """

    reason: str
    stop_sequence: str = ""
    raw: str = ""
    assumed: bool = False


class Noted(msgspec.Struct, frozen=True, gc=False):
    """Something the decoder had to leave out or repair, for the block's `dropped` list."""

    what: str


class Completed(msgspec.Struct, frozen=True, gc=False):
    """Terminal: the end is proven."""


class Failed(msgspec.Struct, frozen=True):
    """Terminal: the end is not proven, or upstream reported an error. What came before is evidence, never a result."""

    error: StromError


Event = (
    Started
    | BlockStarted
    | TextDelta
    | ThinkingDelta
    | SignatureDelta
    | ArgumentsDelta
    | CitationDelta
    | BlockEnded
    | UsageReported
    | Finished
    | Noted
    | Completed
    | Failed
)
