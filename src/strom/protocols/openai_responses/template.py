"""Recognises text deltas that differ from the last one in their text, their sequence number and their padding only.

A Responses delta carries a number that rises by one, so the bytes around the text are the same for two frames in a
row but for a number that is known beforehand; OpenAI adds `obfuscation`, a random string. A frame of that shape needs
no parser: what stands between the same bytes is exactly one JSON string, so it can only be another text in the same
place (see wire/template.py). Nothing is learned from a frame with an escape, or in which a member stands twice.
Source: recordings vllm/responses_stream; protocol-facts.md section 2.3.
"""

from __future__ import annotations

import msgspec

_STRING = msgspec.json.Decoder(str)
_NUMBER = b'"sequence_number":'
_TEXT = b'"delta":'
_PADDING = b'"obfuscation":'
Literal = tuple[bytes, bytes | None]
"""Bytes that are the same in every frame; (before, after) the number where it stands in them."""


class DeltaShape:
    """A whole frame around its text: head, text, middle, padding, tail. Without padding there is no tail."""

    __slots__ = ("_head", "_head_after", "_middle", "_middle_after", "_tail", "_tail_after", "raw", "rest")

    def __init__(self, head: Literal, middle: Literal, tail: Literal | None) -> None:
        self._head, self._head_after = head
        self._middle, self._middle_after = middle
        self._tail: bytes | None = None if tail is None else tail[0]
        self._tail_after: bytes | None = None if tail is None else tail[1]
        self.raw = b""
        """The text of the frame that matched last, as it came."""
        self.rest = b""
        """Its padding."""

    def match(self, data: bytes, number: int) -> str | None:
        """The text of a read that is one frame of this shape with this number; None when it must be parsed."""
        digits = b"%d" % number
        head, after = self._head, self._head_after
        if after is not None:
            head = head + digits + after
        if not data.startswith(head):
            return None
        middle, after = self._middle, self._middle_after
        if after is not None:
            middle = middle + digits + after
        start = len(head)
        end = len(data) - len(middle) if self._tail is None else self._padding_start(data, digits, start) - len(middle)
        if end <= start or not data.startswith(middle, end):
            return None
        try:
            text = _STRING.decode(data[start - 1 : end + 1])
        except msgspec.DecodeError:
            return None
        self.raw = data[start:end]
        return text

    def render(self, raw: bytes, rest: bytes, number: int) -> bytes:
        """A frame of this shape. `raw`: the inside of a JSON string; `rest`: padding, if the shape has any."""
        digits = b"%d" % number
        head = _filled(self._head, digits, self._head_after)
        frame = head + raw + _filled(self._middle, digits, self._middle_after)
        return frame if self._tail is None else frame + rest + _filled(self._tail, digits, self._tail_after)

    def _padding_start(self, data: bytes, digits: bytes, start: int) -> int:
        """Where the padding begins; 0 when there is none in its place."""
        tail = _filled(self._tail or b"", digits, self._tail_after)
        stop = len(data) - len(tail)
        at = data.rfind(b'"', start, max(stop, start)) + 1
        self.rest = data[at:stop]
        return at if data.endswith(tail) and self.rest.isalnum() else 0


def _filled(before: bytes, digits: bytes, after: bytes | None) -> bytes:
    return before if after is None else before + digits + after


def learn(raw: bytes, text: str, number: int | None) -> DeltaShape | None:
    """The shape of a whole, legal text delta frame; None when it cannot be told safely.

    `number`: its sequence number, None when it has none.
    """
    text_at = _string_span(raw, _TEXT)
    if text_at is None or b"\\" in raw or raw[slice(*text_at)] != text.encode("utf-8", "surrogatepass"):
        return None
    number_at = None
    if number is not None or _NUMBER in raw:
        number_at = _number_span(raw, b"%d" % (number or 0))
        if number_at is None:
            return None
    head = _literal(raw, 0, text_at[0], number_at)
    if _PADDING not in raw:
        return DeltaShape(head, _literal(raw, text_at[1], len(raw), number_at), None)
    padding_at = _string_span(raw, _PADDING)
    if padding_at is None or padding_at[0] < text_at[1]:
        return None
    middle = _literal(raw, text_at[1], padding_at[0], number_at)
    return DeltaShape(head, middle, _literal(raw, padding_at[1], len(raw), number_at))


def _value_at(raw: bytes, name: bytes) -> int:
    """Where the value of this member begins; -1 when the name is not there exactly once."""
    at = raw.find(name)
    if at < 0 or raw.find(name, at + 1) >= 0:
        return -1
    at += len(name)
    while raw[at : at + 1] == b" ":
        at += 1
    return at


def _string_span(raw: bytes, name: bytes) -> tuple[int, int] | None:
    """The inside of a member's string."""
    at = _value_at(raw, name)
    if at < 0 or raw[at : at + 1] != b'"':
        return None
    return at + 1, raw.find(b'"', at + 1)


def _number_span(raw: bytes, digits: bytes) -> tuple[int, int] | None:
    at = _value_at(raw, _NUMBER)
    end = at + len(digits)
    return (at, end) if at >= 0 and raw[at:end] == digits and raw[end : end + 1] in (b",", b"}") else None


def _literal(raw: bytes, start: int, end: int, number_at: tuple[int, int] | None) -> Literal:
    if number_at is not None and start <= number_at[0] and number_at[1] <= end:
        return raw[start : number_at[0]], raw[number_at[1] : end]
    return raw[start:end], None
