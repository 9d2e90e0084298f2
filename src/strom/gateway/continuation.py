"""An answer that goes on at another endpoint after its upstream failed in the middle. Opt-in: `[[models]] continuation`.

    StoryPipe    a translated stream that remembers what the client was given, and joins a further upstream's events to it
    go_on        the request for the next upstream, with the text so far, and the seam where its answer joins

Only text can be continued. Once a tool call, a refusal or a block of one protocol has begun, or a JSON format was demanded, the
honest error stands: nothing of these may be given twice or in halves. Reasoning that came before any text is ended, and
the next upstream reasons anew; a further upstream's reasoning after text is left out, since blocks cannot go back. A model with
continuation is always translated, never relayed: byte for byte, two streams do not make one. Rules: streams.md section 9.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import IncompleteCompletion, RateLimited, StreamFailed, StromError
from strom.core.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Event,
    Failed,
    Finished,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.evidence import Evidence
from strom.core.messages import Message, Request, TextPart
from strom.core.usage import estimate_tokens
from strom.gateway.outgoing import Incoming
from strom.gateway.pipes import TranscodePipe
from strom.gateway.seam import Seam, SeamBroken
from strom.protocols.codec import Express, Quirks, StreamDecoder, StreamEncoder, ToolName

CONTINUE = "Continue your answer exactly where it broke off. Repeat nothing of it and add no remark."
_OfABlock = ThinkingDelta | SignatureDelta | ArgumentsDelta | CitationDelta | BlockEnded
_BROKEN = "The backend failed in the middle of its answer, and the one that was to go on began it anew, differently."


class Story:
    """What a client was given of one answer, over all its upstreams. `limit`: how many tokens the client wants at most."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.pieces: list[str] = []
        self.open: int | None = None
        """The block that is open at the client."""
        self.open_kind = ""
        self.blocks = 0
        self.closed_off = False
        """Something came that cannot be continued."""
        self.evidence = Evidence()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def left(self) -> int | None:
        """How many tokens may still come: local servers and hosts give a token, rarely more, in a delta."""
        return None if self.limit is None else max(0, self.limit - self.evidence.deltas)

    def take(self, event: Event) -> None:
        match event:
            case TextDelta(_, text):
                self.pieces.append(text)
            case BlockStarted(index, block):
                self.open, self.open_kind = index, block.kind
                self.blocks = index + 1
                self.closed_off = self.closed_off or block.kind not in ("text", "thinking")
            case BlockEnded():
                self.open = None
            case SignatureDelta() | CitationDelta():
                self.closed_off = True
            case _:
                pass


def make_story(request: Request) -> Story | None:
    """None: what is asked for cannot be continued. A whole reply is not begun before it is complete, and needs none."""
    several = request.sampling.n is not None and request.sampling.n > 1
    return (
        None
        if several or not request.stream or request.response_format is not None
        else Story(request.max_output_tokens)
    )


def may_continue(story: Story, error: StromError) -> bool:
    """A terminator without a reason is an end all the same: what would come after it, nobody asked for. Likewise what would
    come after as much as was asked for."""
    ended = isinstance(error, IncompleteCompletion) or story.left == 0
    of_upstream = error.fault == "upstream" or isinstance(
        error, RateLimited
    )  # of a backend that was asked, it is its own
    return of_upstream and error.retryable and not ended and not story.closed_off


def go_on(incoming: Incoming, story: Story, quirks: Quirks) -> tuple[Incoming, Seam]:
    """What the next upstream is asked, and where its answer joins."""
    request, cut = continued(incoming.request, story, prefill=quirks.prefill)
    asked = msgspec.structs.replace(incoming, request=request, filled=True)  # its bytes do not say this
    return asked, Seam(story.text, prefilled=quirks.prefill, cut=cut)


def continued(request: Request, story: Story, *, prefill: bool) -> tuple[Request, str]:
    """The request for the next upstream, and the white space at the text's end that it does not show.

    An assistant's last message must not end in white space where it is continued (Anthropic refuses it).
    """
    shown = story.text.rstrip()
    cut = story.text[len(shown) :]
    if not shown:
        return msgspec.structs.replace(request, max_output_tokens=story.left), cut
    messages = list(request.messages)
    if messages and messages[-1].role == "assistant":
        last = messages.pop()
        messages.append(msgspec.structs.replace(last, parts=(*last.parts, TextPart(shown))))
    else:
        messages.append(Message("assistant", (TextPart(shown),)))
    if not prefill:
        messages.append(Message("user", (TextPart(CONTINUE),)))
    return msgspec.structs.replace(request, messages=tuple(messages), max_output_tokens=story.left), cut


class StoryPipe(TranscodePipe):
    """`seam` None: the first upstream of its answer; then events pass as they are."""

    __slots__ = ("_ahead", "_map", "_seam", "_story")

    def __init__(
        self,
        story: Story,
        decoder: StreamDecoder,
        encoder: StreamEncoder,
        names: dict[str, ToolName],
        seam: Seam | None,
    ) -> None:
        super().__init__(decoder, encoder, names)
        self._story = story
        self._seam = seam
        self._map: dict[int, int | None] = {}
        self._ahead = 0
        """Tokens of earlier upstreams, which this one's count does not know."""
        if seam is not None:
            self.evidence = _heir(story.evidence)
            self._ahead = estimate_tokens(self.evidence.output_characters)
        story.evidence = self.evidence

    def feed(self, data: bytes) -> bytes:
        return self.pass_on(self._decode(data))

    def express(self) -> Express | None:
        return None

    def _give(self, events: list[Event]) -> bytes:
        if self._seam is not None:
            events = self._joined(events, self._seam)
        else:
            for event in events:
                self._story.take(event)
        return super()._give(events)

    # -- joining --

    def _joined(self, events: list[Event], seam: Seam) -> list[Event]:
        out: list[Event] = []
        try:
            for event in events:
                self._join(event, seam, out)
        except SeamBroken:
            out.append(Failed(StreamFailed(_BROKEN, code="continuation_failed")))
        return out

    def _join(self, event: Event, seam: Seam, out: list[Event]) -> None:
        match event:
            case BlockStarted(index, block):
                self._open(index, block.kind, event, out)
            case TextDelta(index, text):
                target = self._map.get(index)
                passed = seam.feed(text) if target is not None else ""
                if target is not None and passed:
                    self._emit(TextDelta(target, passed), out)
            case ThinkingDelta() | SignatureDelta() | ArgumentsDelta() | CitationDelta() | BlockEnded():
                self._move(event, seam, out)
            case UsageReported(usage) if usage.output_tokens is not None:
                told = msgspec.structs.replace(usage, output_tokens=usage.output_tokens + self._ahead)
                out.append(UsageReported(told))
            case Finished():
                self._close_inherited(out)
                out.append(event)
            case _:
                out.append(event)

    def _emit(self, event: Event, out: list[Event]) -> None:
        self._story.take(event)
        out.append(event)

    def _open(self, index: int, kind: str, event: BlockStarted, out: list[Event]) -> None:
        story = self._story
        if kind == "text" and self._inherits and story.open_kind == "text":
            self._map[index] = story.open  # the client's open text goes on
        elif kind in ("thinking", "redacted_thinking") and story.pieces:
            self._map[index] = None
        else:
            self._close_inherited(out)
            self._map[index] = story.blocks
            self._emit(msgspec.structs.replace(event, index=story.blocks), out)

    @property
    def _inherits(self) -> bool:
        """The block that is open at the client is an earlier upstream's, and none of this one's goes on with it."""
        return self._story.open is not None and self._story.open not in self._map.values()

    def _close_inherited(self, out: list[Event]) -> None:
        if self._inherits and self._story.open is not None:
            self._emit(BlockEnded(self._story.open), out)

    def _move(self, event: _OfABlock, seam: Seam, out: list[Event]) -> None:
        target = self._map.get(event.index)
        if target is None:
            return
        if isinstance(event, BlockEnded) and not seam.joined and self._story.open_kind == "text":
            rest = seam.finish()
            if rest:
                self._emit(TextDelta(target, rest), out)
        self._emit(msgspec.structs.replace(event, index=target), out)


def _heir(earlier: Evidence) -> Evidence:
    """What the client has seen counts on; what the failed upstream said of its end does not."""
    fresh = Evidence()
    fresh.first_token_kind = earlier.first_token_kind
    fresh.deltas = earlier.deltas
    fresh.output_characters = earlier.output_characters
    fresh.notes = list(earlier.notes)
    fresh.continued = True
    return fresh
