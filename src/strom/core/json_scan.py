"""Follows tool arguments while they stream in: are they one complete JSON value yet, and what of them is to be passed on?

Invariants: linear work however the text is cut (each character is looked at once; one real parse, at the end); what is
passed on for a text is the same for every cut of it; a legal text is passed on unchanged but for white space around it.
An answer wrapped in a Markdown fence loses the fence live: nothing before the first `{`, nothing after its partner.
Text that starts like neither an object, an array nor a fence is passed on as it comes and judged at the end.
Source: streams.md section 4.
"""

from __future__ import annotations

import re

import msgspec

_OUTSIDE = re.compile(r'[{}\[\]"]')  # what matters outside of strings
_INSIDE = re.compile(r'["\\]')  # what matters inside of one
_PARSER = msgspec.json.Decoder()


class JsonScan:
    """One call's arguments. `complete`: an object or array has been closed. `fenced`: a Markdown fence is being stripped."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_mode", "_pieces", "complete", "fenced")

    def __init__(self) -> None:
        self._mode = _START
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._pieces: list[str] = []
        self.complete = False
        self.fenced = False

    @property
    def empty(self) -> bool:
        """Nothing but white space has come: that counts as `{}`."""
        return self._mode == _START

    @property
    def text(self) -> str:
        """Everything that was passed on."""
        return "".join(self._pieces)

    def feed(self, fragment: str) -> str:
        """What of this fragment is to be passed on; "" when nothing is."""
        if self.complete:
            return ""
        if self._mode == _START:
            fragment = self._begin(fragment.lstrip())
        if self._mode == _FENCE:
            at = fragment.find("{")
            if at < 0:
                return ""
            fragment = fragment[at:]
            self._mode = _VALUE
        if self._mode == _VALUE:
            fragment = fragment[: self._scan(fragment)]
        if fragment:
            self._pieces.append(fragment)
        return fragment

    def problem(self) -> str:
        """Why the whole is no JSON object, "" when it is one. The one real parse; call it once, at the end."""
        if self.empty:
            return ""
        try:
            value = _PARSER.decode(self.text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            return f"the arguments are not valid JSON: {error}"
        return "" if isinstance(value, dict) else "the arguments are not a JSON object"

    def _begin(self, text: str) -> str:
        if text:
            self.fenced = text[0] == "`"
            self._mode = _FENCE if self.fenced else _VALUE if text[0] in "{[" else _PLAIN
        return text

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
            elif self._step_outside(text[at - 1]):
                return at

    def _step_inside(self, text: str, at: int) -> int:
        """Takes the quote or backslash before `at`; returns where to go on."""
        if text[at - 1] == '"':
            self._in_string = False
            return at
        self._escaped = at == len(text)
        return at + 1

    def _step_outside(self, character: str) -> bool:
        """Takes a quote or bracket; True when it closes the value."""
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.complete = self._depth == 0
        return self.complete


_START, _FENCE, _VALUE, _PLAIN = range(4)
