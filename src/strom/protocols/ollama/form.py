"""The two endpoints that answer with text: the same lines, but for where the text stands.

/api/chat: `"message": {"role": "assistant", "content": …, "thinking": …, "tool_calls": […]}`;
/api/generate: `"response": …, "thinking": …, "tool_calls": […]` in the line itself.
Source: protocol-facts.md section 4; ollama-python 0.6.3, ChatResponse and GenerateResponse.
"""

from __future__ import annotations

import msgspec


class Form(msgspec.Struct, frozen=True):
    """`opening`: bytes before the text's value; `closing`: bytes after the last of its companions."""

    path: str
    opening: bytes
    closing: bytes

    def contents(self, text: bytes, *more: bytes) -> bytes:
        """The members that carry the answer; `text` is a JSON string, `more` are whole members."""
        return self.opening + b",".join([text, *more]) + self.closing


CHAT = Form("/api/chat", b'"message":{"role":"assistant","content":', b"}")
GENERATE = Form("/api/generate", b'"response":', b"")
