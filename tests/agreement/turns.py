"""What a scripted backend was asked, in any of the four protocols, and what it answers: plain data, no codec takes part.

A script is a function from `Asked` to a turn, so one script serves all protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Object = dict[str, Any]


class Asked(msgspec.Struct, frozen=True):
    """`prompt`: the last text of the user; `results`: of tools, since that text; `schema`: a JSON answer is wanted."""

    protocol: str
    prompt: str
    results: tuple[str, ...]
    tools: tuple[str, ...]
    schema: bool
    streamed: bool
    number: int
    """Of the request, counted from 1."""


class Call(msgspec.Struct, frozen=True):
    name: str
    arguments: Object


class Turn(msgspec.Struct, frozen=True):
    """An answer. `cut`: the connection ends behind the text, without a finish and without a terminator.

    `status`: a refusal instead of an answer. `silent`: nothing comes after the text until the client leaves.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    reason: str = ""
    cut: bool = False
    silent: bool = False
    status: int = 200

    @property
    def pieces(self) -> list[str]:
        return pieces_of(self.text)


Script = Callable[[Asked], Turn]


def pieces_of(text: str) -> list[str]:
    """As a model gives them: words with the space behind them."""
    return re.findall(r"\S+\s*|\s+", text)


def read(protocol: str, body: Object, number: int) -> Asked:
    """The request in the words of the script."""
    items: list[Object] = list(_messages(protocol, body))
    texts = [at for at, item in enumerate(items) if item["kind"] == "user"]
    last = texts[-1] if texts else 0
    return Asked(
        protocol,
        prompt=items[last]["text"] if texts else "",
        results=tuple(item["text"] for item in items[last + 1 :] if item["kind"] == "result"),
        tools=tuple(_tool_name(tool) for tool in body.get("tools") or ()),
        schema=_wants_schema(body),
        streamed=bool(body.get("stream", protocol == "ollama")),
        number=number,
    )


def _messages(protocol: str, body: Object) -> Iterator[Object]:
    given = body.get("input" if protocol == "openai-responses" else "messages", [])
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if item.get("type") == "function_call_output":
            yield {"kind": "result", "text": _text(item["output"])}
        elif item.get("role") == "tool":
            yield {"kind": "result", "text": _text(content)}
        elif results:
            yield from ({"kind": "result", "text": _text(block.get("content"))} for block in results)
        elif item.get("role") == "user":
            yield {"kind": "user", "text": _text(content)}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content)
    return str(content or "")


def _tool_name(tool: Object) -> str:
    return str(tool.get("function", tool)["name"])


def _wants_schema(body: Object) -> bool:
    """Wherever a protocol says it."""
    text = body.get("text") or {}
    return bool(
        body.get("response_format")
        or body.get("format")
        or body.get("output_config", {}).get("format")
        or body.get("output_format")
        or text.get("format", {}).get("type") == "json_schema"
    )
