"""What a relay holds back until the terminator: finish frames and usage. Says in which form they leave.

With `include_usage`: the finish frames, then one frame with `choices: []` and the last usage (the upstream's own
frame if it sent one). Without: usage, if there is any, on the last finish frame. A frame that needs no change leaves as the
bytes it came in. Where each choice is counted alone (quirk usage_per_choice) their sum is the last usage.
Source: streams.md sections 2 and 6; llama.cpp sends one usage frame per choice (recording xllamacpp/n2).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strom.core.usage import Usage
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_chat.encoder import with_block
from strom.protocols.openai_chat.frame_edit import FrameEdit, Members, frame, join_list, raw_list
from strom.protocols.openai_chat.schema import UsageReport
from strom.protocols.openai_chat.usage import usage_json
from strom.wire.splice import join, split

_DEMANDED = ("prompt_tokens", "completion_tokens", "total_tokens")


_NO_MEMBERS: Members = {}


class HeldFrame:
    """`raw`: the whole frame as it came, None once its JSON was changed."""

    __slots__ = ("_known", "data", "raw")

    def __init__(self, data: bytes, raw: bytes | None) -> None:
        self.data = data
        self.raw = raw
        self._known: Members | None = None

    @property
    def _members(self) -> Members:
        if self._known is None:
            self._known = split(self.data)
        return self._known

    @property
    def has_usage(self) -> bool:
        return self._members.get("usage", b"null") != b"null"

    def set_usage(self, value: bytes | None) -> None:
        """Sets the member, or removes it (None); a member that has this value already is left alone."""
        if self._members.get("usage") == value:
            return
        if value is None:
            self._members.pop("usage")
        else:
            self._members["usage"] = value
        self.data, self.raw = join(self._members), None

    def set_reason(self, value: bytes) -> None:
        """Another finish reason, of a frame with one choice."""
        (choice,) = raw_list(self._members["choices"])
        self._members["choices"] = join_list([join({**choice, "finish_reason": value})])
        self.data, self.raw = join(self._members), None

    def bytes(self) -> bytes:
        return self.raw if self.raw is not None else frame(self.data)


class Held:
    """Usage and finish frames of one answer."""

    __slots__ = ("_context", "_usage", "_usage_frame", "_usage_json", "_written", "finishes")

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._usage_json: bytes | None = None
        self._usage = _NO_MEMBERS
        self._usage_frame: HeldFrame | None = None
        self._written = 0
        self.finishes: dict[int, HeldFrame] = {}

    def hold_usage(self, report: UsageReport, raw: bytes) -> None:
        """A report; of later ones the last counts. One without numbers reports nothing."""
        if report.prompt_tokens is not None or report.completion_tokens is not None:
            self._usage_json, self._usage = raw, split(raw)

    def summed(self, report: UsageReport, raw: bytes) -> tuple[UsageReport, bytes]:
        """A report of one choice alone, with what the choices before it have written: they had one prompt."""
        own = report.completion_tokens or 0
        self._written += own
        if self._written == own:
            return report, raw
        total = (report.prompt_tokens or 0) + self._written
        changes = {"completion_tokens": b"%d" % self._written, "total_tokens": b"%d" % total}
        report = msgspec.structs.replace(report, completion_tokens=self._written, total_tokens=total)
        return report, join({**split(raw), **changes})

    def hold_usage_frame(self, edit: FrameEdit, raw: bytes) -> None:
        """A frame with usage alone. It leaves only if the client asked for one."""
        self._usage_frame = HeldFrame(edit.data(), None if edit.changed else raw)

    def release(self, envelope: Callable[[], Members], usage: Usage | None, characters: int) -> bytes:
        """All of it, the routing block on the last frame. `envelope`: the members of a frame that has to be made."""
        frames = [self.finishes[index] for index in sorted(self.finishes)]
        reported = self._whole_usage(usage, characters)
        if self._context.include_usage:
            for held in frames:
                self._take_usage_away(held)
            told = reported or usage_json(None, self._context.input_estimate, characters)
            frames.append(self._own_frame(envelope, told))
        elif reported is not None:
            for held in frames[:-1]:
                held.set_usage(None)
            frames[-1].set_usage(reported)
        last = frames[-1]
        data = with_block(last.data, self._context)
        closing = last.bytes() if data is last.data else frame(data)
        return b"".join(held.bytes() for held in frames[:-1]) + closing

    def _whole_usage(self, usage: Usage | None, characters: int) -> bytes | None:
        """The last report, with the numbers Chat demands."""
        if self._usage_json is None:
            return None
        members = self._usage
        lacking = [name for name in _DEMANDED if members.get(name, b"null") == b"null"]
        if not lacking:
            return self._usage_json
        whole = split(usage_json(usage, self._context.input_estimate, characters))
        return join({**members, **{name: whole[name] for name in lacking}})

    def _take_usage_away(self, held: HeldFrame) -> None:
        """Usage has a frame of its own; on the finish frame null may stand."""
        if not self._context.continuous_usage and held.has_usage:
            held.set_usage(b"null")

    def _own_frame(self, envelope: Callable[[], Members], usage: bytes) -> HeldFrame:
        if self._usage_frame is None:
            return HeldFrame(join({**envelope(), "choices": b"[]", "usage": usage}), None)
        self._usage_frame.set_usage(usage)
        return self._usage_frame
