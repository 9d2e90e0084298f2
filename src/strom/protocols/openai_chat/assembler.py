"""Turns chunks, one after the other, into canonical events. The stream decoder and the whole reply both use it.

Order within a chunk: thinking, content, tool calls, finish. Text, thinking and refusal blocks never overlap anything; tool
blocks may overlap each other while upstream interleaves. A tool block ends when its arguments are complete and something else
begins, or at the finish; text that comes in the middle of a call's arguments waits until then. White space after a call is
held back until it is known whether text follows; before another call, or at the end, it is dropped. The start of a call
waits for its first argument fragment, since names come in pieces. Only choice 0 is translated.
Source: streams.md sections 3 to 6.
"""

from __future__ import annotations

from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Finished,
    Noted,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.think_tags import ThinkTags
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat.calls import Call, CallTracker
from strom.protocols.openai_chat.finish import finished
from strom.protocols.openai_chat.schema import (
    Choice,
    Chunk,
    Delta,
    FunctionPart,
    Piece,
    ToolCallPart,
    created_seconds,
    id_text,
)
from strom.protocols.openai_chat.usage import to_usage


class Assembler:
    """Feed it chunks with `take`; `out` collects the events and is taken away by the caller.

    `open_kind` and `open_index`: the open text, thinking or refusal block, "" when there is none. `finish`: the last reason.
    """

    def __init__(self, quirks: Quirks) -> None:
        self.out: list[Event] = []
        self.finish: Finished | None = None
        self.open_kind: BlockKind | None = None
        self.open_index = 0
        self.tags = ThinkTags(enabled=quirks.think_tags, preopened=quirks.think_preopened)
        self._started = False
        self._next_index = 0
        self._calls = CallTracker()
        self._open_calls: list[Call] = []
        self._after_call = False
        self._blank: list[str] = []  # white space after a call
        self._waiting: list[tuple[BlockKind, str]] = []  # came in the middle of a call's arguments
        self._last_choice: Choice | None = None
        self._several = False

    def take(self, chunk: Chunk) -> None:
        """Raises DecodeError when arguments are a broken JSON string."""
        if chunk.choices:
            self._start(chunk)
            for choice in chunk.choices:
                self._take_choice(choice)
        if chunk.usage is not None:
            self.out.append(UsageReported(to_usage(chunk.usage)))

    def end(self, *, reason_required: bool) -> bool:
        """The terminator came. Ends all blocks and settles the reason; False when there is none and one is required."""
        if self._last_choice is None and reason_required:
            self.flush_tags()
            return False
        self._settle()
        if self._last_choice is not None:
            self._report_finish(self._last_choice)  # calls may have come after it
        else:
            self._start(Chunk())
            self.finish = Finished("tool_calls" if self._calls.calls else "stop", assumed=True)
            self.out.append(self.finish)
        return True

    def _start(self, chunk: Chunk) -> None:
        if not self._started:
            self._started = True
            response_id = id_text(chunk.id)
            self._calls.seed(response_id)
            self.out.append(Started(response_id, chunk.model or "", created_seconds(chunk.created)))

    def _take_choice(self, choice: Choice) -> None:
        if choice.index:
            if not self._several:
                self._several = True
                self.out.append(Noted("choices other than the first"))
            return
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        if choice.finish_reason:
            self._settle()
            self._last_choice = choice
            self._report_finish(choice)

    def _take_delta(self, delta: Delta) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._take_reasoning(reasoning)
        if delta.content:
            self._take_content(delta.content)
        if delta.refusal:
            self.flush_tags()
            self._say("refusal", delta.refusal)
        if delta.tool_calls:
            for part in delta.tool_calls:
                self._take_call(part)
        elif delta.function_call is not None:
            self._take_legacy(delta.function_call)

    def _take_reasoning(self, text: str) -> None:
        self.flush_tags()
        self.tags.after_reasoning()
        self._say("thinking", text)

    def _take_content(self, content: str | list[Piece]) -> None:
        if isinstance(content, str):
            for kind, text in self.tags.feed(content):
                self._say(kind, text)
            return
        for piece in content:
            if piece.thinking:
                self._take_reasoning(_thinking_text(piece.thinking))
            elif piece.text:
                self._take_content(piece.text)

    def flush_tags(self) -> None:
        """What was held back as the beginning of a tag is none: something else follows, or nothing."""
        for kind, text in self.tags.flush():
            self._say(kind, text)

    def _say(self, kind: BlockKind, text: str) -> None:
        """Text of a block that overlaps nothing."""
        if kind == self.open_kind:
            self._add(text)
            return
        if kind == "text" and self._after_call and text.isspace():
            self._blank.append(text)
            return
        if self._open_calls and not self._end_complete_calls():
            self._waiting.append((kind, text))
            return
        if self._blank:
            text = "".join(self._blank) + text if kind == "text" else text
            self._blank.clear()
        self._begin(kind)
        self._add(text)

    def _begin(self, kind: BlockKind) -> None:
        self._close()
        self.open_kind, self.open_index = kind, self._next_index
        self._next_index += 1
        self._after_call = False
        self.out.append(BlockStarted(self.open_index, Block(kind)))

    def _add(self, text: str) -> None:
        delta = ThinkingDelta if self.open_kind == "thinking" else TextDelta
        self.out.append(delta(self.open_index, text))

    def _close(self) -> None:
        if self.open_kind is not None:
            self.out.append(BlockEnded(self.open_index))
            self.open_kind = None

    def _take_legacy(self, function: FunctionPart) -> None:
        """`function_call` has no id and no index: there is one call at most."""
        self._take_call(ToolCallPart(index=0, function=function))

    def _take_call(self, part: ToolCallPart) -> None:
        fragment = self._calls.place(part)
        call = fragment.call
        if fragment.opens:
            self._begin_call(call)
        if call.ended:
            return
        if fragment.clean:
            call.held.append(fragment.clean)
        if call.name and call.held:
            self._start_call(call)
            self.out.extend([ArgumentsDelta(call.block or 0, text) for text in call.held])
            call.held.clear()
        if self._waiting and self._end_complete_calls():
            self._say_waiting()

    def _begin_call(self, call: Call) -> None:
        """Another call opens: the ones before it start now at the latest, so that they keep their order."""
        self.flush_tags()
        self._end_complete_calls()
        for earlier in self._open_calls:
            if earlier.name:
                self._start_call(earlier)
        self._open_calls.append(call)

    def _start_call(self, call: Call) -> None:
        if call.block is not None:
            return
        self._close()
        self._blank.clear()
        self._after_call = True
        call.block = self._next_index
        self._next_index += 1
        self.out.append(BlockStarted(call.block, Block("tool_call", call.call_id, call.name, custom=call.custom)))

    def _end_complete_calls(self) -> bool:
        """Ends the calls that need nothing more; True when none is left."""
        self._open_calls = [call for call in self._open_calls if not (call.complete and self._end_call(call))]
        return not self._open_calls

    def _end_call(self, call: Call) -> bool:
        call.ended = True
        if not call.name:
            self.out.append(Noted("a tool call without a name"))
            return True
        self._start_call(call)
        problem = "" if call.custom else call.scan.problem()
        self.out.append(BlockEnded(call.block or 0, problem))
        return True

    def _say_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, text in waiting:
            self._say(kind, text)

    def _settle(self) -> None:
        """Nothing of what is open goes on: the finish, or the end."""
        self.flush_tags()
        for call in self._open_calls:
            self._end_call(call)
        self._open_calls = []
        self._say_waiting()
        self._blank.clear()
        self._close()

    def _report_finish(self, choice: Choice) -> None:
        said = finished(choice, with_calls=bool(self._calls.calls))
        if said != self.finish:
            self.finish = said
            self.out.append(said)


def _thinking_text(thinking: str | list[Piece]) -> str:
    return thinking if isinstance(thinking, str) else "".join(piece.text or "" for piece in thinking)
