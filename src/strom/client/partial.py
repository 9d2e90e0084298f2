"""The value a JSON text amounts to while it still streams in.

Invariants: each character is scanned once; a snapshot parses everything that has come, so snapshots are taken only when the
text has grown by a 64th since the last one: the work stays linear in the length of the answer, and every fragment of a short
answer gives a snapshot. A snapshot never shows a number, a literal or a key that may still go on; text that goes on is shown
as far as it came. What stands before the first brace (a Markdown fence, a preface) and after its partner is left out.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_OUTSIDE = re.compile(r'["{}\[\]:,]')
_INSIDE = re.compile(r'["\\]')
_CLOSERS = {"{": "}", "[": "]"}
_DECODE = msgspec.json.Decoder().decode
NOTHING = object()
"""There is no value yet, or none that has not been shown."""


class PartialJson:
    """Feed it text; `snapshot` gives the value so far, or NOTHING. `complete`: the outer object has been closed."""

    __slots__ = (
        "_escape_at", "_escaped", "_in_string", "_is_key", "_last", "_length", "_open", "_pieces", "_safe", "_shown_at",
        "complete",
    )  # fmt: skip

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._open: list[str] = []  # the closing brackets that are due, outermost first
        self._in_string = self._escaped = self._is_key = False
        self._escape_at = -1
        self._safe: tuple[int, str] | None = None  # up to here, closed by that, the text is a JSON value
        self._shown_at = 0
        self._last: Any = NOTHING
        self.complete = False

    @property
    def text(self) -> str:
        """The JSON text alone, as far as it came."""
        text = "".join(self._pieces)
        self._pieces = [text]
        return text

    def feed(self, fragment: str) -> None:
        if self.complete:
            return
        if not self._pieces:
            at = fragment.find("{")
            if at < 0:
                return
            fragment = fragment[at:]
        end = self._scan(fragment)
        self._pieces.append(fragment[:end])
        self._length += end

    def snapshot(self) -> Any:
        """The value so far, if it is another than the one shown last."""
        grown = self._length - self._shown_at
        if grown <= self._shown_at // 64 and not (self.complete and grown):
            return NOTHING
        value = self._parse()
        if value is NOTHING or value == self._last:
            return NOTHING
        self._shown_at, self._last = self._length, value
        return value

    def _parse(self) -> Any:
        if self._in_string and not self._is_key:
            end = self._escape_at if self._cut_escape() else self._length
            closed = self.text[:end] + '"' + "".join(reversed(self._open))
        elif self._safe is not None:
            end, closers = self._safe
            closed = self.text[:end] + closers
        else:
            return NOTHING
        try:
            return _DECODE(closed)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return NOTHING

    def _cut_escape(self) -> bool:
        """Whether the text ends inside an escape. The first half of a surrogate pair ends inside of one, too."""
        if self._escape_at < 0:
            return False
        escape = self.text[self._escape_at :]
        if escape.startswith("\\u"):
            pending = 12 if escape[2:4].lower() in ("d8", "d9", "da", "db") else 6
            return len(escape) < pending
        return len(escape) < 2

    def _scan(self, text: str) -> int:
        """Moves over `text`; returns the length of what belongs to the value."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while True:
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            if self._in_string:
                at = self._step_inside(text, at)
            else:
                self._step_outside(found[0], self._length + at)
                if self.complete:
                    return at

    def _step_inside(self, text: str, at: int) -> int:
        """Takes the quote or backslash before `at`; returns where to go on."""
        if text[at - 1] == '"':
            self._in_string = False
            if not self._is_key:
                self._mark(self._length + at)
            return at
        position = self._length + at - 1
        if not self._is_pair(position):
            self._escape_at = position
        self._escaped = at == len(text)
        return at + 1

    def _is_pair(self, position: int) -> bool:
        """Whether the escape at `position` is the second half of a surrogate pair that began 6 characters before."""
        return self._escape_at == position - 6

    def _step_outside(self, character: str, end: int) -> None:
        match character:
            case '"':
                self._in_string, self._escape_at = True, -1
            case "{" | "[":
                self._open.append(_CLOSERS[character])
                self._is_key = character == "{"
                self._mark(end)
            case ",":
                self._mark(end - 1)
                self._is_key = self._open[-1:] == ["}"]
            case ":":
                self._is_key = False
            case _:
                if self._open:
                    self._open.pop()
                self._is_key = False
                self._mark(end)
                self.complete = not self._open

    def _mark(self, end: int) -> None:
        self._safe = (end, "".join(reversed(self._open)))
