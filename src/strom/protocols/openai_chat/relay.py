"""Relays a Chat stream to a Chat client: legal frames byte for byte, frames that break the protocol repaired, alone.

Held back until the terminator: finish frames (the last one of each choice wins) and usage, since the last report wins, usage
stands exactly once, where the client expects it, and the routing block rides on the last data frame. Nothing else is held.
A frame with text and a finish reason is split in two. No frame is invented but the usage frame the client asked for, `{}` for
a call without arguments, and a finish frame or terminator a quirk makes unnecessary upstream.
Comments pass; blocks without data, and `id:` or `retry:` lines (openai-python takes an event without data for one that is
no JSON), do not. An error, or an end without proof, sets `evidence.error` and puts nothing out.
Source: streams.md sections 1, 2, 6 and 10; protocol-facts.md sections 1.3 and 7.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import IncompleteCompletion, InvalidStreamEvent, StromError
from strom.core.events import Finished
from strom.core.evidence import Evidence
from strom.protocols.codec import Express, Quirks, ReplyContext
from strom.protocols.openai_chat.encoder import DONE_FRAME, HEARTBEAT, fail_frame
from strom.protocols.openai_chat.errors import error_in_frame
from strom.protocols.openai_chat.finish import finished, repaired_reason
from strom.protocols.openai_chat.frame_edit import FrameEdit, Members, frame, join_list, one_line
from strom.protocols.openai_chat.held import Held, HeldFrame
from strom.protocols.openai_chat.repair import ChoiceState, Envelope, Repairer, empty_call_fragments, number_choices
from strom.protocols.openai_chat.schema import (
    Choice,
    Chunk,
    Delta,
    UsageReport,
    decode_chunk,
    has_error,
    is_chunk,
    tells_error,
)
from strom.protocols.openai_chat.stream import KEEP_ALIVE_MODEL, is_end, is_sentinel, undecodable, unfinished
from strom.protocols.openai_chat.usage import to_usage
from strom.protocols.openai_chat.weights import weigh
from strom.wire.splice import join
from strom.wire.sse import Frame, SseParser
from strom.wire.template import FrameTemplate

KIND = "chat.completion.chunk"
JSON = msgspec.json.Encoder().encode


class ChatRelay:
    """See codec.Relay."""

    __slots__ = (
        "_context",
        "_ended",
        "_envelope",
        "_fits",
        "_held",
        "_parser",
        "_pieces",
        "_quick",
        "_quirks",
        "_repairer",
        "_states",
        "_template",
        "evidence",
    )

    def __init__(self, context: ReplyContext, quirks: Quirks) -> None:
        self.evidence = Evidence()
        self._context = context
        self._quirks = quirks
        self._parser = SseParser(quirks.max_frame_bytes)
        self._template = FrameTemplate()
        self._fits = False  # the template holds for the next whole frame, and it passes as it came
        self._quick = False  # no part of a frame is pending, and the template may be used
        self._pieces: list[bytes] | None = (
            None  # a repaired frame around its text; None: such frames leave as they came
        )
        self._envelope = Envelope(context, KIND)
        self._repairer = Repairer(context)
        self._states: dict[int, ChoiceState] = {}
        self._held = Held(context)
        self._ended = False

    def feed(self, data: bytes) -> bytes:
        if self._quick:
            text = self._template.match_string(data)
            if text is not None:
                evidence = self.evidence
                evidence.deltas += 1
                evidence.output_characters += len(text)
                pieces = self._pieces
                return data if pieces is None else self._template.cut_out(data).join(pieces)
            texts = self._template.match_strings(data) if self._pieces is None else None
            if texts is not None:
                self.evidence.deltas += len(texts)
                self.evidence.output_characters += sum(map(len, texts))
                return data
        return self._feed(data)

    def express(self) -> Express | None:
        return (self._template.match_string, None) if self._quick and self._pieces is None else None

    def finish(self) -> bytes:
        self._quick = False
        if self._ended:
            return b""
        pending = self._parser.pending.strip()
        done = is_sentinel(pending)
        clean = not pending and not self._quirks.done_required and self._all_finished()
        if done or clean:
            return self._end(DONE_FRAME)
        return self._stop(unfinished(started=self.evidence.finish_reason is not None))

    def fail(self, error: StromError) -> bytes:
        return fail_frame(error)

    def heartbeat(self) -> bytes:
        return HEARTBEAT

    def _feed(self, data: bytes) -> bytes:
        self._quick = False
        if self._ended:
            return b""
        try:
            frames = self._parser.feed(data)
        except InvalidStreamEvent as error:
            return self._stop(error)
        out = []
        for frame_in in frames:
            text = self._template.match_string(frame_in.raw) if self._fits else None
            if text is not None:
                self.evidence.deltas += 1
                self.evidence.output_characters += len(text)
                out.append(frame_in.raw)
                continue
            self._fits = self._quick = False  # until a frame of the state that follows was judged
            out.append(self._take(frame_in))
            if self._ended:
                break
        self._quick = self._fits_or_quick()
        if not self._ended and is_sentinel(self._parser.pending_line):
            out.append(self._end(DONE_FRAME))
        return b"".join(out)

    def _fits_or_quick(self) -> bool:
        """Whether the next read may be a frame of the learned shape from its first byte on."""
        return (self._quick or self._fits) and not self._ended and self._parser.idle

    def _take(self, came: Frame) -> bytes:
        data = came.data
        if data is None:
            return came.raw if _is_comment(came.raw) else b""
        if not data or data.isspace():
            return b""
        if is_end(data):
            return self._end(came.raw if came.raw == DONE_FRAME else DONE_FRAME)
        if came.event == b"error":
            return self._stop(error_in_frame(data))
        try:
            return self._take_chunk(decode_chunk(data), came)
        except msgspec.ValidationError:
            return self._take_foreign(data, came)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return self._stop(undecodable(data))

    def _take_foreign(self, data: bytes, came: Frame) -> bytes:
        """Legal JSON that is not understood: the client may. Only an error in it is one for everybody."""
        try:
            return self._stop(error_in_frame(data)) if tells_error(data) else came.raw
        except (msgspec.DecodeError, RecursionError):
            return self._stop(undecodable(data))

    def _take_chunk(self, chunk: Chunk, came: Frame) -> bytes:
        if has_error(chunk):
            return self._stop(error_in_frame(came.data or b""))
        if not is_chunk(chunk):
            return came.raw
        if chunk.model == KEEP_ALIVE_MODEL or chunk.type == "ping":
            return b""
        edit = FrameEdit(came.data or b"")
        if _has_foreign_lines(came.raw):
            edit.changed = True
        self._envelope.repair(chunk, edit)
        self._observe_envelope(chunk)
        if chunk.usage is not None:
            self._take_usage(chunk.usage, chunk.choices or [], edit)
        if not chunk.choices:
            return self._take_bare(chunk, came, edit)
        return self._take_choices(chunk.choices, came, edit)

    def _observe_envelope(self, chunk: Chunk) -> None:
        evidence = self.evidence
        if not evidence.response_id:
            evidence.response_id = self._envelope.response_id
            evidence.model = chunk.model or ""

    def _take_usage(self, report: UsageReport, choices: list[Choice], edit: FrameEdit) -> None:
        """Notes usage; on frames where the client does not expect it, it does not go out."""
        raw = edit.members["usage"]
        if self._quirks.usage_per_choice and not choices:
            report, raw = self._held.summed(report, raw)
        self.evidence.report_usage(to_usage(report))
        self._held.hold_usage(report, raw)
        finishing = any(choice.finish_reason for choice in choices)
        if not choices or finishing or self._context.continuous_usage:
            return
        if self._context.include_usage:
            edit.set("usage", b"null")
        else:
            edit.remove("usage")

    def _take_bare(self, chunk: Chunk, came: Frame, edit: FrameEdit) -> bytes:
        """A chunk without choices: the usage frame, or one that carries something only its vendor knows (or nothing)."""
        if chunk.usage is not None:
            if chunk.choices is None:
                edit.set("choices", b"[]")
            self._held.hold_usage_frame(edit, came.raw)
            return b""
        if self._context.include_usage and chunk.choices is not None:
            return _out(edit, came)
        if edit.members.keys() <= _ENVELOPE:
            return b""
        edit.set("choices", b'[{"index":0,"delta":{},"finish_reason":null}]')
        return _out(edit, came)

    def _take_choices(self, choices: list[Choice], came: Frame, edit: FrameEdit) -> bytes:
        number_choices(choices, edit)
        role_first = any(choice.delta and choice.delta.role and not self._state(choice).role_said for choice in choices)
        kinds = self._weigh(choices)
        for number, choice in enumerate(choices):
            self._repairer.repair(choice, self._state(choice), edit, number)
        self.evidence.tool_calls = sum(len(state.calls.calls) for state in self._states.values())
        if any(choice.finish_reason for choice in choices):
            return self._hold_finishes(choices, kinds, came, edit)
        out = _out(edit, came)
        if len(choices) == 1 and kinds[0] in ("thinking", "content") and not role_first:
            self._learn(choices[0], came, out)
        return out

    def _state(self, choice: Choice) -> ChoiceState:
        index = choice.index or 0
        state = self._states.get(index)
        if state is None:
            state = self._states[index] = ChoiceState(self._envelope.response_id)
        return state

    def _weigh(self, choices: list[Choice]) -> list[str]:
        """The kind of each choice's first token, "" where it has none; a frame with a token counts once."""
        weights = [weigh(choice.delta or choice.message or Delta()) for choice in choices]
        kinds = [kind for kind, _ in weights]
        first = next((kind for kind in kinds if kind), "")
        if first:
            self.evidence.deltas += 1
            self.evidence.first_token_kind = self.evidence.first_token_kind or first
            self.evidence.output_characters += sum(characters for _, characters in weights)
        return kinds

    def _hold_finishes(self, choices: list[Choice], kinds: list[str], came: Frame, edit: FrameEdit) -> bytes:
        """Finish frames wait; what else the frame carries goes out at once."""
        for choice in choices:
            if choice.finish_reason and not choice.index:
                self._note_finish(finished(choice, with_calls=bool(self._state(choice).calls.calls)))
        if len(choices) == 1 and not kinds[0]:
            self._held.finishes[choices[0].index or 0] = HeldFrame(edit.data(), None if edit.changed else came.raw)
            return b""
        going = []
        for choice, kind, opened in zip(choices, kinds, edit.choices, strict=True):
            if choice.finish_reason:
                alone = {**opened.members, "delta": b"{}", "logprobs": b"null"}
                members = {**edit.members, "choices": join_list([join(alone)])}
                self._held.finishes[choice.index or 0] = HeldFrame(join(members), None)
                opened.members["finish_reason"] = b"null"
                opened.members.pop("stop_reason", None)
            if kind or not choice.finish_reason:
                going.append(opened.join())
        return self._rest(going, edit)

    def _rest(self, going: list[bytes], edit: FrameEdit) -> bytes:
        if not going:
            return b""
        members = {**edit.members, "choices": join_list(going)}
        if not self._context.continuous_usage and "usage" in members:
            members["usage"] = b"null"
        return frame(one_line(join(members)))

    def _note_finish(self, reason: Finished) -> None:
        evidence = self.evidence
        evidence.finish_reason, evidence.finish_raw = reason.reason, reason.raw

    def _learn(self, choice: Choice, came: Frame, out: bytes) -> None:
        """A frame with one plain text, whose repair depends on nothing that changes, is a shape to recognise."""
        delta = choice.delta or Delta()
        texts = [text for text in (delta.content, delta.reasoning_content or delta.reasoning) if text]
        if len(texts) != 1 or not isinstance(texts[0], str) or self._context.reasoning == "text":
            return
        text = texts[0].encode("utf-8", "surrogatepass")
        pieces = out.split(b'"' + text + b'"')
        added = bool(delta.reasoning and not delta.reasoning_content)
        if out is not came.raw and len(pieces) != 2 + added:
            return
        self._template.learn(came.raw, text)
        self._pieces = None if out is came.raw else _quoted(pieces)
        self._fits = self._pieces is None
        self._quick = self._parser.idle

    def _all_finished(self) -> bool:
        return bool(self._states) and self._held.finishes.keys() == self._states.keys()

    def _end(self, terminator: bytes) -> bytes:
        """The terminator came: what is held leaves, if a reason is there or need not be."""
        if not self._all_finished():
            if self._quirks.finish_reason_required:
                return self._stop(IncompleteCompletion("The upstream ended its answer without a finish reason."))
            self._assume_finish()
        self._ended = True
        last_calls = self._fill_empty_calls()
        self._repair_reasons()
        evidence = self.evidence
        evidence.complete = True
        released = self._held.release(self._made, evidence.usage, evidence.output_characters)
        return last_calls + released + terminator

    def _assume_finish(self) -> None:
        """Quirk finish_reason_required = false: the terminator alone is proof."""
        for index in list(self._states) or [0]:
            if index not in self._held.finishes:
                state = self._states.setdefault(index, ChoiceState(self._envelope.response_id))
                reason = "tool_calls" if state.calls.calls else "stop"
                choice = {"index": JSON(index), "delta": b"{}", "finish_reason": JSON(reason)}
                members = {**self._made(), "choices": join_list([join(choice)])}
                self._held.finishes[index] = HeldFrame(join(members), None)
                if index == 0:
                    self._note_finish(Finished(reason))
                    self.evidence.finish_assumed = True

    def _repair_reasons(self) -> None:
        """Known only at the end: the last reason of a choice wins, and calls may have come after it."""
        for index, state in self._states.items():
            called = bool(state.calls.calls)
            word = repaired_reason(state.finish_reason, with_calls=called, legacy=state.legacy_call)
            if word is not None:
                self._held.finishes[index].set_reason(JSON(word))
                if index == 0:
                    self._note_finish(Finished("tool_calls", raw=state.finish_reason or ""))

    def _fill_empty_calls(self) -> bytes:
        out = []
        for index, state in self._states.items():
            for delta in empty_call_fragments(state):
                choice = {"index": JSON(index), "delta": delta, "finish_reason": b"null"}
                out.append(frame(join({**self._made(), "choices": join_list([join(choice)])})))
        return b"".join(out)

    def _made(self) -> Members:
        """The envelope of a frame that has to be made."""
        context = self._context
        return {
            "id": JSON(self._envelope.response_id or f"chatcmpl-{context.reply_id}"),
            "object": JSON(KIND),
            "created": JSON(self._envelope.created or context.created),
            "model": JSON(context.model if self._envelope.model is None else self._envelope.model),
        }

    def _stop(self, error: StromError) -> bytes:
        self._ended = True
        self.evidence.error = error
        return b""


_ENVELOPE = frozenset(("id", "object", "created", "model", "choices", "system_fingerprint"))


def _out(edit: FrameEdit, came: Frame) -> bytes:
    return frame(edit.data()) if edit.changed else came.raw


def _quoted(pieces: list[bytes]) -> list[bytes]:
    """The pieces between which a text goes, with its quotes."""
    last = len(pieces) - 1
    return [(b'"' if n else b"") + piece + (b'"' if n < last else b"") for n, piece in enumerate(pieces)]


def _lines(raw: bytes) -> list[bytes]:
    return [line for line in raw.replace(b"\r", b"\n").split(b"\n") if line]


def _is_comment(raw: bytes) -> bool:
    return all(line.startswith(b":") for line in _lines(raw))


def _has_foreign_lines(raw: bytes) -> bool:
    """Lines a Chat client has no use for: `id:` and `retry:`."""
    if raw.startswith(b"data:") and raw.find(b"\n") == len(raw) - 2:
        return False
    return not all(line.startswith((b"data:", b"event:", b":")) for line in _lines(raw))
