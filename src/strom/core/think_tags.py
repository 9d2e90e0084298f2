"""Takes `<think>…</think>` out of an answer's content while it streams.

Rules: only at the very start of the answer (white space may stand before it); everything in angle brackets later is text. A
`</think>` that opens the content right after reasoning in a field of its own is a leftover and dropped. `preopened`: the
chat template opened the tag, so content begins inside it. What may still become a tag is held back, and nothing else.
Invariant: joined by kind, the pieces are the same for every cut of the input. Source: streams.md section 5.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["text", "thinking"]
Piece = tuple[Kind, str]

OPEN = "<think>"
CLOSE = "</think>"
_SPACE = " \t\r\n"


class ThinkTags:
    """Feed it content; it gives the pieces back with their kind. `settled`: all that follows is text, as it comes."""

    __slots__ = ("_held", "_opening", "_thinking", "settled")

    def __init__(self, *, enabled: bool = True, preopened: bool = False) -> None:
        self._held = ""
        self._opening = OPEN  # the tag that may stand at the start of what follows; "": none
        self._thinking = preopened
        self.settled = not enabled and not preopened

    def after_reasoning(self) -> None:
        """Reasoning came in a field of its own: a tag it left over may open the content, and nothing is preopened."""
        if self._opening and not self._held:
            self._opening, self._thinking = CLOSE, False

    def feed(self, text: str) -> list[Piece]:
        if self.settled:
            return [("text", text)] if text else []
        text = self._held + text
        self._held = ""
        if self._opening:
            text = self._take_opening(text)
        if not text:
            return []
        return self._take_thinking(text) if self._thinking else [("text", text)]

    def flush(self) -> list[Piece]:
        """The content is over, or something else follows: what was held back is no tag."""
        text, self._held = self._held, ""
        if not text:
            return []
        self._opening = ""
        self.settled = not self._thinking
        return [("thinking" if self._thinking else "text", text)]

    def _take_opening(self, text: str) -> str:
        """Decides about a tag at the start; returns the text to go on with, "" while it is undecided."""
        tag = self._opening
        body = text.lstrip(_SPACE)
        if len(body) < len(tag) and tag.startswith(body):
            self._held = text
            return ""
        self._opening = ""
        found = body.startswith(tag)
        if found and tag == OPEN:
            self._thinking = True
        self.settled = not self._thinking
        return body[len(tag) :] if found else text

    def _take_thinking(self, text: str) -> list[Piece]:
        before, tag, after = text.partition(CLOSE)
        if not tag:
            keep = _partial_tag(text)
            self._held = text[len(text) - keep :]
            before = text[: len(text) - keep]
            return [("thinking", before)] if before else []
        self._thinking, self.settled = False, True
        pieces: list[Piece] = [("thinking", before)] if before else []
        return [*pieces, ("text", after)] if after else pieces


def _partial_tag(text: str) -> int:
    """Length of the longest end of `text` that may be the beginning of `</think>`."""
    at = text.rfind("<", max(0, len(text) - len(CLOSE) + 1))
    return len(text) - at if at >= 0 and CLOSE.startswith(text[at:]) else 0
