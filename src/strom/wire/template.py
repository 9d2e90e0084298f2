"""Recognises the frames of a stream that differ in one JSON string only, without parsing them again.

A model's stream is thousands of frames with the same bytes around one short text. Once such a frame has been parsed and
judged, `learn` remembers the bytes before and after its text; `match_string` then answers for a read that consists of exactly
one frame of that shape. It is sound because what stands between the same bytes is exactly one JSON string, so it can only be
another text in the same place: no other event fits into the read, since any would need a line end and a quote.
"""

from __future__ import annotations

import msgspec

_STRING = msgspec.json.Decoder(str)


class FrameTemplate:
    """One learned shape. `match_string` gives the text, or None when the read must be parsed."""

    __slots__ = ("_least", "_prefix", "_suffix", "_suffix_length")

    def __init__(self) -> None:
        self._prefix = b"\x00"
        self._suffix = b""
        self._suffix_length = 0
        self._least = 1 << 62

    def learn(self, raw: bytes, text: bytes) -> None:
        """`raw` is a whole frame without escapes in which `"text"` stands exactly once; otherwise nothing is learned."""
        needle = b'"' + text + b'"'
        at = raw.find(needle)
        if not text or at < 0 or raw.find(needle, at + 1) >= 0 or b"\\" in raw or not raw.endswith(b"\n"):
            return  # with an escape in the frame, the text could be written differently in its place and stand elsewhere
        self._prefix = raw[: at + 1]
        self._suffix = raw[at + 1 + len(text) :]
        self._suffix_length = len(self._suffix)
        self._least = len(self._prefix) + self._suffix_length + 1

    def forget(self) -> None:
        self._prefix = b"\x00"

    def match_string(self, data: bytes) -> str | None:
        """The text of a read that is one frame of the learned shape, escapes and all: what stands there is one JSON string."""
        if not data.startswith(self._prefix) or not data.endswith(self._suffix) or len(data) < self._least:
            return None
        try:
            return _STRING.decode(data[len(self._prefix) - 1 : 1 - self._suffix_length])
        except msgspec.DecodeError:
            return None

    def match_strings(self, data: bytes) -> list[str] | None:
        """The texts of a read that is several frames of the learned shape and nothing else.

        Between two texts stands the end of one frame and the beginning of the next, with line ends that no JSON string holds.
        """
        if not data.startswith(self._prefix) or not data.endswith(self._suffix) or len(data) < self._least:
            return None
        parts = data[len(self._prefix) : -self._suffix_length].split(self._suffix + self._prefix)
        if b"" in parts:
            return None
        try:
            return [_STRING.decode(b'"' + part + b'"') for part in parts]
        except msgspec.DecodeError:
            return None

    def cut_out(self, data: bytes) -> bytes:
        """The bytes of the text, as they came, of a read that matches."""
        return data[len(self._prefix) : -self._suffix_length]
