"""The order of a Messages event stream, judged from the bytes alone. Knows nothing of the codec.

Source: streams.md section 2; Anthropic's streaming documentation (message flow).
"""

from __future__ import annotations

import json
from typing import Any

FITTING = {
    "text": {"text_delta", "citations_delta"},
    "tool_use": {"input_json_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "redacted_thinking": set(),
}
PAYLOAD = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class GrammarBroken(AssertionError):
    pass


def need(holds: object, rule: str) -> None:
    if not holds:
        raise GrammarBroken(rule)


class Seen:
    """What a client makes of the stream."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.blocks: list[dict[str, Any]] = []
        self.finish: str | None = None
        self.stop_sequence: str | None = None
        self.usage: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.message: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.pings = 0
        self.comments = 0
        self.open = False

    def joined(self, kind: str) -> str:
        return "".join(block["payload"] for block in self.blocks if block["type"] == kind)

    @property
    def text(self) -> str:
        return self.joined("text")

    @property
    def thinking(self) -> str:
        return self.joined("thinking")

    @property
    def kinds(self) -> list[str]:
        return [block["type"] for block in self.blocks]

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        calls = [block for block in self.blocks if block["type"] == "tool_use"]
        return [(call["id"], call["name"], json.loads(call["payload"] or "{}")) for call in calls]


def read(body: bytes, *, strict: bool = True, complete: bool = True) -> Seen:
    """Raises GrammarBroken. `strict`: every frame was written by us. `complete`: a proven end or an error is demanded."""
    seen = Seen()
    need(not body or body.endswith((b"\n\n", b"\r\n\r\n")), "body ends inside an event")
    for block in body.decode().replace("\r\n", "\n").split("\n\n")[:-1]:
        lines = block.split("\n")
        if all(line.startswith(":") or not line for line in lines):
            seen.comments += 1
            continue
        need(len(lines) == 2, f"not one event line and one data line: {block!r}")
        need(lines[0].startswith("event: ") and lines[1].startswith("data: "), f"malformed lines: {block!r}")
        _event(seen, lines[0][7:], json.loads(lines[1][6:]), strict=strict)
    if complete and seen.error is None:
        need(seen.types.count("message_delta") == 1, "not exactly one message_delta")
        need(seen.types[-1:] == ["message_stop"], "last event is not message_stop")
    return seen


def _event(seen: Seen, name: str, data: dict[str, Any], *, strict: bool) -> None:
    kind = data.get("type")
    need(name == kind, f"event name {name!r} is not type {kind!r}")
    need(seen.types[-1:] not in (["message_stop"], ["error"]), "event after the end")
    if kind == "ping":
        need(seen.types, "ping before message_start")
        seen.pings += 1
        return
    need((kind == "message_start") == (not seen.types) or kind == "error", "message_start not first and once")
    seen.types.append(name)
    seen.last = data
    match kind:
        case "message_start":
            _start(seen, data["message"])
        case "content_block_start":
            _block_start(seen, data)
        case "content_block_delta":
            _delta(seen, data, strict=strict)
        case "content_block_stop":
            need(seen.open and data["index"] == len(seen.blocks) - 1, "stop for a block that is not open")
            seen.open = False
        case "message_delta":
            _message_delta(seen, data)
        case "error":
            seen.error = data["error"]
            need(isinstance(seen.error, dict) and seen.error["message"], "error without message")
            need(not strict or "message_delta" not in seen.types, "message_delta before the error")
        case "message_stop":
            pass
        case _:
            need(not strict, f"unknown event {kind!r}")


def _start(seen: Seen, message: dict[str, Any]) -> None:
    seen.message = message
    need(isinstance(message["id"], str) and message["id"], "message without id")
    need(message["type"] == "message" and message["role"] == "assistant", "malformed message_start")
    need(message["content"] == [] and message["stop_reason"] is None, "message_start is not empty")
    need(isinstance(message["model"], str), "message without model")
    usage = message["usage"]
    need(isinstance(usage["input_tokens"], int) and isinstance(usage["output_tokens"], int), "no counts at the start")
    need(usage["input_tokens"] or usage.get("cache_read_input_tokens"), "input_tokens is 0")
    seen.usage.update(usage)


def _block_start(seen: Seen, data: dict[str, Any]) -> None:
    block = data["content_block"]
    need(not seen.open, "block opened while another is open")
    need(data["index"] == len(seen.blocks), "block index does not rise by one")
    if block["type"] == "tool_use":
        need(isinstance(block["id"], str) and block["id"] and block["name"], "tool_use without id or name")
        need(block["input"] == {}, "tool_use starts with input")
    seen.blocks.append({**block, "payload": "", "signature": ""})
    seen.open = True


def _delta(seen: Seen, data: dict[str, Any], *, strict: bool) -> None:
    delta = data["delta"]
    need(seen.open and data["index"] == len(seen.blocks) - 1, "delta for a block that is not open")
    block = seen.blocks[-1]
    fitting = FITTING.get(block["type"])
    need(fitting is None or delta["type"] in fitting, f"{delta['type']} in a {block['type']} block")
    value = delta.get(PAYLOAD.get(delta["type"], ""), "")
    need(not strict or delta["type"] not in PAYLOAD or value, "empty delta")
    block["payload"] += value
    block["signature"] += delta.get("signature", "")


def _message_delta(seen: Seen, data: dict[str, Any]) -> None:
    need(not seen.open, "message_delta while a block is open")
    seen.finish, seen.stop_sequence = data["delta"]["stop_reason"], data["delta"]["stop_sequence"]
    need(isinstance(seen.finish, str), "message_delta without stop_reason")
    need(isinstance(data["usage"]["output_tokens"], int), "message_delta without output_tokens")
    seen.usage.update({name: value for name, value in data["usage"].items() if value is not None})
