"""Recognises the lines of a stream that differ in their time stamp and one text only, without parsing them again.

Ollama stamps every line with a new `created_at`, so a template with one hole (wire/template.py) never fits twice. The reasoning
is the same: a JSON string without quotes and backslashes between the same bytes can only be another text in the same
place, and a stamp of nothing but the characters of RFC 3339 can only be another stamp.
Source: ollama-python 0.6.3, ChatResponse; cases 051, 067 (stamps change from line to line).
"""

from __future__ import annotations

_STAMP_CHARACTERS = b"0123456789-:.+TZ"
_LONGEST_STAMP = 48


class LineTemplate:
    """One learned shape: prefix, stamp, middle, text, suffix."""

    __slots__ = (
        "_least",
        "_middle",
        "_middle_length",
        "_prefix",
        "_prefix_length",
        "_suffix",
        "_suffix_length",
        "_window",
    )

    def __init__(self) -> None:
        self._prefix = b"\x00"
        self._prefix_length = 0
        self._middle = b""
        self._middle_length = 0
        self._suffix = b""
        self._suffix_length = 0
        self._window = 0
        self._least = 1 << 62

    def learn(self, raw: bytes, stamp: bytes, text: bytes) -> bool:
        """`raw` is a whole line without escapes in which `"stamp"` and, after it, `"text"` stand exactly once each.

        Anything else is not learned, and the answer is False.
        """
        if not text or b"\\" in raw or not raw.endswith(b"\n"):
            return False
        first, second = _only(raw, b'"' + stamp + b'"'), _only(raw, b'"' + text + b'"')
        if first < 0 or second <= first:
            return False
        after_stamp = first + 1 + len(stamp)
        self._prefix = raw[: first + 1]
        self._middle = raw[after_stamp : second + 1]
        self._suffix = raw[second + 1 + len(text) :]
        self._prefix_length, self._middle_length = len(self._prefix), len(self._middle)
        self._suffix_length = len(self._suffix)
        self._window = self._prefix_length + _LONGEST_STAMP + self._middle_length
        self._least = self._suffix_length + 1
        return True

    def match_text(self, data: bytes) -> str | None:
        """The text of a read that is one line of the learned shape: never empty, without quotes, escapes or controls."""
        if not data.startswith(self._prefix) or not data.endswith(self._suffix):
            return None
        at = data.find(self._middle, self._prefix_length, self._window)
        begin = at + self._middle_length
        if at < 0 or len(data) < begin + self._least or data[self._prefix_length : at].strip(_STAMP_CHARACTERS):
            return None
        try:
            text = data[begin : -self._suffix_length].decode()
        except UnicodeDecodeError:
            return None
        if '"' in text or "\\" in text or not text.isprintable():
            return None
        return text


def _only(raw: bytes, needle: bytes) -> int:
    """Where the needle stands if it stands there once; -1 otherwise."""
    at = raw.find(needle)
    return at if at >= 0 and raw.find(needle, at + 1) < 0 else -1
