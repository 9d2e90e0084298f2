"""What a wire protocol has to offer, in both directions. One folder per protocol implements it; `CODECS` lists them.

A protocol stands in *front* (a client speaks it to us) and *behind* (we speak it to an upstream). Everything here is
sans-I/O: it is fed and returns, raises nothing but `StromError` where it says so, and never reads a clock.

    front:  decode_request → Request          encoder(context) → StreamEncoder     encode_reply     encode_error
    behind: encode_request → UpstreamCall     decoder(quirks)  → StreamDecoder     decode_reply     decode_error
    both:   relay_request, relay(…) → Relay, relay_reply: the same protocol on both sides, bytes stay bytes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from strom.core.errors import StromError
from strom.core.events import Event
from strom.core.evidence import Evidence
from strom.core.messages import Reply, Request, ToolName

Headers = list[tuple[bytes, bytes]]
Lone = Callable[[bytes], str | None]
"""Looks at a read. One that is exactly one more delta like the last event, it takes in and gives its text; of any other it
takes nothing, gives None, and the read has to be fed."""
Express = tuple[Lone, Callable[[str], bytes] | None]
"""And what makes the client's bytes of the text; None: the read goes out as it came."""
__all__ = [
    "Codec",
    "EncodedError",
    "Express",
    "Lone",
    "Quirks",
    "Relay",
    "ReplyContext",
    "StreamDecoder",
    "StreamEncoder",
    "Target",
    "ToolName",
    "UpstreamCall",
]


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an upstream deviates from its protocol. Every default is the strict reading. Configured per provider."""

    done_required: bool = True
    """False: a clean end of the body after the finish reason counts as proof."""
    finish_reason_required: bool = True
    """False: the terminator alone is proof; the reason is then `stop`, marked as assumed."""
    think_preopened: bool = False
    """The chat template opens <think> itself: content begins inside it."""
    think_tags: bool = True
    """<think>…</think> at the very start of content is reasoning."""
    stream_usage: bool = True
    """The upstream takes stream_options.include_usage (Chat)."""
    usage_per_choice: bool = False
    """Of several choices (n > 1) each has its own usage chunk, which counts that choice alone (Chat)."""
    developer_role: bool = False
    """The upstream knows the role developer (Chat); else it is sent as system."""
    max_completion_tokens: bool = False
    """The output limit goes out as max_completion_tokens (Chat), not as max_tokens."""
    cache_control: bool = False
    """cache_control markers are understood (Chat)."""
    tool_choice: bool = True
    """False: there is no tool_choice; what can be imitated by the list of tools is, the rest is dropped and named."""
    response_format: bool = True
    mid_system: bool = True
    """False: a system message that is not leading is folded into its neighbour user message."""
    images: bool = True
    """False: any part that is not text is refused by the upstream."""
    media_urls: bool = True
    """False: the upstream fetches nothing: it takes images and documents as data, not by their address."""
    strict_schemas: bool = False
    """The upstream enforces a subset of JSON Schema: what was written for another protocol is fitted to it."""
    reasoning_field: str = "reasoning_content"
    """Field in which earlier reasoning is sent back (Chat); "" leaves it out."""
    always_stream: bool = False
    """The upstream only streams: it is asked to stream also for a whole reply, and its stream is folded."""
    never_stream: bool = False
    """The upstream only gives whole replies: a client that streams gets one as a stream, when it is there."""
    prefill: bool = False
    """A last message of the assistant is continued, not answered."""
    max_frame_bytes: int = 16_777_216
    """The longest frame or line that is read; a longer one is an error ([server] max_frame_bytes)."""
    default_max_tokens: int = 8192
    """Sent when the protocol demands a limit (Anthropic) and the client gave none."""


def no_block() -> bytes | None:
    """Of a call that tells nothing of itself, or nothing any more."""
    return None


class ReplyContext(msgspec.Struct):
    """What an encoder or relay needs to know of the call. One per call, made by the gateway before the first frame.

    `block()` gives the routing block as JSON bytes, or None when it is switched off; it is called once, at the end, after
    the evidence is complete. `block_name` is its member name.
    """

    reply_id: str
    """A bare unique id (no prefix): protocols put chatcmpl-, msg_ … in front. Used when the upstream gave none."""
    request_id: str
    """The trace id, for error bodies."""
    model: str
    """The name the client asked for; translated replies carry it."""
    created: int
    """Unix seconds."""
    created_at: str = ""
    """The same instant as RFC 3339 (Ollama, Responses)."""
    include_usage: bool = False
    continuous_usage: bool = False
    input_estimate: int = 1
    """Estimated prompt tokens, at least 1: stands where a protocol demands a number before upstream told one."""
    block_name: str = "strom"
    block: Callable[[], bytes | None] = no_block
    reasoning: str = "native"
    """native | text | drop: what happens to reasoning on the way out (product.md, [server] reasoning)."""
    request: Request | None = None
    """The client's request, for protocols whose replies echo it (Responses)."""


class Target(msgspec.Struct, frozen=True):
    """The upstream endpoint a request is encoded for."""

    model: str
    stream: bool
    """Whether the upstream shall stream (independent of what the client wants)."""
    quirks: Quirks = Quirks()


class UpstreamCall(msgspec.Struct, frozen=True):
    """A request in an upstream's words. `path` is below the base URL, with /v1 where the protocol has it."""

    path: str
    body: bytes
    headers: Headers = []
    """Protocol headers (anthropic-version …); content-type, accept, auth are added by the caller."""
    dropped: tuple[str, ...] = ()
    """What could not be carried, as paths in canonical words: "tools[2] web_search", "top_k", "cache_control" …"""
    tool_names: dict[str, ToolName] = {}
    """Only names that differ, upstream's name → client's."""


class StreamDecoder(Protocol):
    """Upstream bytes → canonical events. Owns its framing. Never raises: what is wrong becomes `Failed`, once, last.

    After a terminal event everything is ignored. `finish` is called when the body ended by its own framing; it returns the
    terminal event if none came yet (IncompleteStream …, or the proof where a quirk says that a clean end is one).
    """

    def feed(self, data: bytes) -> list[Event]: ...

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        """After a feed: if the next read may well be one more delta, its type and block, and what recognises it."""
        ...

    def finish(self) -> list[Event]: ...


class StreamEncoder(Protocol):
    """Canonical events → client bytes. One per call, also when several upstream attempts are made before the first token.

    `encode` is never given `Failed`: the gateway words errors through `fail`, which gives the in-band error of the protocol
    and no success terminator. On `Completed` the finish frame, the routing block and the terminator come out. Everything else
    leaves with the event that caused it; only the finish frame (message_delta …) is held until usage or the end.
    A `Started` after the first one (a second attempt) changes nothing. `heartbeat` may open the stream first.
    """

    def encode(self, events: list[Event]) -> bytes: ...

    def continues(self, kind: type[Event], index: int) -> Callable[[str], bytes] | None:
        """After an encode, and until the next: writes one more delta of this kind to this block. None: use `encode`."""
        ...

    def fail(self, error: StromError) -> bytes: ...

    def heartbeat(self) -> bytes: ...


class Relay(Protocol):
    """Upstream bytes → client bytes of the same protocol, unchanged but for policy and single frames that break the rules.

    Keeps `evidence` up to date *before* it asks for the routing block. An upstream error, or an end without proof, sets
    `evidence.error` and puts nothing out for it: the gateway then calls `fail`. A frame the observer cannot understand although
    it is legal JSON passes on. Held back: the finish frame and usage, until usage or the terminator came; nothing else.
    """

    evidence: Evidence

    def feed(self, data: bytes) -> bytes: ...

    def express(self) -> Express | None:
        """After a feed, and until the next: the short way for reads that are one more token, if there is one. Whoever goes it
        counts the text in the evidence."""
        ...

    def finish(self) -> bytes:
        """The body ended by its own framing."""
        ...

    def fail(self, error: StromError) -> bytes: ...

    def heartbeat(self) -> bytes: ...


class EncodedError(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    """Protocol headers, retry-after and rate-limit headers included; content-type and ids are added by the caller."""
    body: bytes


class Codec(Protocol):
    """One wire protocol. Implementations are modules' functions gathered in a `CodecTable` (see protocols/__init__.py)."""

    name: str
    stream_content_type: bytes
    """Of a streamed reply: text/event-stream; charset=utf-8, or application/x-ndjson."""
    forward_request_headers: frozenset[bytes]
    """Headers of the client that go to an upstream of the same protocol."""
    forward_response_headers: tuple[bytes, ...]
    """Prefixes of upstream response headers that go back to a client of the same protocol (rate limits)."""

    # front
    def decode_request(self, body: bytes) -> Request:
        """Raises BadRequest, Unsupported."""
        ...

    def encoder(self, context: ReplyContext) -> StreamEncoder: ...

    def encode_reply(self, reply: Reply, context: ReplyContext) -> bytes: ...

    def encode_error(self, error: StromError, request_id: str) -> EncodedError: ...

    # behind
    def encode_request(self, request: Request, target: Target) -> UpstreamCall:
        """Raises Unsupported, BadRequest."""
        ...

    def decoder(self, quirks: Quirks) -> StreamDecoder: ...

    def decode_reply(self, body: bytes, quirks: Quirks) -> list[Event]:
        """A whole reply as the stream it amounts to; ends in Completed or Failed. Never raises."""
        ...

    def decode_error(self, status: int, headers: Headers, body: bytes) -> StromError:
        """The error an upstream's non-2xx answer (or an error inside a 200) stands for, worded without the upstream's HTML."""
        ...

    # both
    def relay_request(self, body: bytes, request: Request, target: Target) -> UpstreamCall:
        """The client's own bytes with the model spliced in, top-level nulls removed and what policy must add."""
        ...

    def relay(self, context: ReplyContext, quirks: Quirks) -> Relay: ...

    def relay_whole(self, body: bytes, context: ReplyContext, quirks: Quirks, evidence: Evidence) -> bytes:
        """A whole reply of an upstream of this protocol, as it goes to the client: `decode_reply` and `relay_reply` in one.

        Fills `evidence` first, so that the routing block is right. What it gives is of no use once `evidence.error` is set.
        """
        ...

    def relay_reply(self, body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
        """The upstream's whole reply with the routing block spliced in; repaired only where it breaks the protocol.

        `events`: what `decode_reply` made of the body (it ended in Completed).
        """
        ...
