"""Repairs what of a chunk or whole message breaks the Chat protocol, and that only.

Repaired are a choice without its index, tool calls (missing or wrong index, missing, numeric or repeated id, repeated name,
a name in pieces, arguments as an object or in a Markdown fence), a role said twice, a missing delta, reasoning in a foreign
field, and an envelope without its members.
`reasoning` "drop" and "text" are the deployment's wish, not a repair, and done here as well.
Source: streams.md sections 2, 4 and 5; protocol-facts.md sections 0 (10, 11) and 7; recordings llama_cpp_python/tools_named,
mlx_lm/echo_tools_stream.
"""

from __future__ import annotations

import msgspec

from strom.protocols.codec import ReplyContext
from strom.protocols.openai_chat.calls import Call, CallTracker, Fragment
from strom.protocols.openai_chat.encoder import THINK_CLOSE, THINK_OPEN
from strom.protocols.openai_chat.frame_edit import FrameEdit, Members, join_list, raw_list
from strom.protocols.openai_chat.schema import Choice, Chunk, Delta, ToolCallPart, created_seconds, id_text
from strom.wire.splice import join, split

JSON = msgspec.json.Encoder().encode
_NO_NAMES: frozenset[str] = frozenset()
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


class ChoiceState:
    """What one choice has shown so far."""

    __slots__ = ("calls", "finish_reason", "in_tag", "legacy_call", "role_said")

    def __init__(self, response_id: str) -> None:
        self.calls = CallTracker()
        self.calls.seed(response_id)
        self.role_said = False
        self.in_tag = False
        self.legacy_call = False  # a call in the deprecated member `function_call`
        self.finish_reason: str | None = None  # the last one, in the upstream's word


class Envelope:
    """The members every chunk has. `id` and `model` are the first chunk's; missing ones are the gateway's.

    `created` may change (llama.cpp dates every chunk anew); where it is missing the first one stands.
    """

    __slots__ = ("context", "created", "kind", "model", "response_id")

    def __init__(self, context: ReplyContext, kind: str) -> None:
        self.context = context
        self.kind = kind
        self.response_id = ""
        self.created = 0
        self.model: str | None = None

    def repair(self, chunk: Chunk, edit: FrameEdit) -> None:
        if not self.response_id:
            self.response_id = id_text(chunk.id) or f"chatcmpl-{self.context.reply_id}"
        if self.model is None:
            self.model = chunk.model if chunk.model is not None else self.context.model
        if chunk.id != self.response_id:
            edit.set("id", JSON(self.response_id))
        if chunk.object != self.kind:
            edit.set("object", JSON(self.kind))
        if not self.created:
            self.created = created_seconds(chunk.created) or self.context.created
        if type(chunk.created) is not int:
            edit.set("created", JSON(created_seconds(chunk.created) or self.created))
        if chunk.model != self.model:
            edit.set("model", JSON(self.model))


def number_choices(choices: list[Choice], edit: FrameEdit) -> None:
    """Gives an index to choices that have none: their place, as they are told apart by nothing else."""
    for number, choice in enumerate(choices):
        if choice.index is None:
            choice.index = number
            edit.choices[number].members["index"] = JSON(number)
            edit.changed = True


class Repairer:
    """Repairs the choices of one answer, in the order they come."""

    __slots__ = ("_mode", "_names")

    def __init__(self, context: ReplyContext, *, whole: bool = False) -> None:
        """`whole`: of a whole reply, in which nothing can come in pieces."""
        self._mode = context.reasoning
        tools = () if whole or context.request is None else context.request.tools
        self._names = frozenset(tool.name for tool in tools) if tools else _NO_NAMES

    def repair(self, choice: Choice, state: ChoiceState, edit: FrameEdit, number: int) -> None:
        """`number`: the choice's place in the chunk."""
        delta = choice.delta or choice.message
        if delta is None:
            edit.body(number)  # becomes {}
            delta = Delta()
        if delta.role:
            if state.role_said:
                edit.body(number).pop("role")
            state.role_said = True
        if self._mode != "native":
            self._convert_reasoning(choice, delta, state, edit, number)
        elif delta.reasoning and not delta.reasoning_content:
            body = edit.body(number)
            body["reasoning_content"] = body["reasoning"]
        if delta.function_call is not None:
            state.legacy_call = True
        if choice.finish_reason:
            state.finish_reason = choice.finish_reason
        if delta.tool_calls:
            self._repair_calls(delta.tool_calls, state, edit, number)

    def _convert_reasoning(
        self, choice: Choice, delta: Delta, state: ChoiceState, edit: FrameEdit, number: int
    ) -> None:
        """Reasoning is left out, or goes into the content between tags."""
        reasoning = delta.reasoning_content or delta.reasoning or ""
        if reasoning:
            body = edit.body(number)
            for name in _REASONING_FIELDS:
                body.pop(name, None)
        if self._mode != "text" or (delta.content is not None and not isinstance(delta.content, str)):
            return
        tagged = ("" if state.in_tag else THINK_OPEN) + reasoning if reasoning else ""
        state.in_tag = state.in_tag or bool(reasoning)
        if state.in_tag and (delta.content or delta.tool_calls or choice.finish_reason):
            state.in_tag = False
            tagged += THINK_CLOSE
        if tagged:
            delta.content = tagged + (delta.content or "")
            edit.body(number)["content"] = JSON(delta.content)

    def _repair_calls(self, parts: list[ToolCallPart], state: ChoiceState, edit: FrameEdit, number: int) -> None:
        placed = [(part, state.calls.place(part)) for part in parts]
        halves = any(fragment.call.waiting is not None or self._is_half(fragment) for _, fragment in placed)
        if not halves and all(_is_legal(part, fragment) for part, fragment in placed):
            return
        body = edit.body(number)
        opened = raw_list(body["tool_calls"])
        fixed = [_repaired(members, *both) for members, both in zip(opened, placed, strict=True)]
        if halves:
            fragments = [fragment for _, fragment in placed]
            pieces = [self._named(piece, fragment) for piece, fragment in zip(fixed, fragments, strict=True)]
            fixed = [piece for piece in pieces if piece is not None]
        if fixed:
            body["tool_calls"] = join_list(fixed)
        else:
            del body["tool_calls"]

    def _is_half(self, fragment: Fragment) -> bool:
        """Whether the name that has come is the beginning of a declared one, and the rest of it may come.

        Clients take the first piece (AI SDK), the last one (openai-node) or all (openai-python): so it has to be one piece.
        """
        name = fragment.call.name
        if not self._names or not name or name in self._names or fragment.arguments or not fragment.call.scan.empty:
            return False
        return any(each.startswith(name) for each in self._names)

    def _named(self, piece: bytes, fragment: Fragment) -> bytes | None:
        """The part with the whole name; None while it waits for the rest of it."""
        call = fragment.call
        members = split(piece)
        if call.waiting is not None:
            function = split(call.waiting["function"]) | split(members.get("function", b"{}"))
            members = call.waiting | {"function": join(function | {"name": JSON(call.name)})}
        call.waiting = members if self._is_half(fragment) else None
        return join(members) if call.waiting is None else None


def _is_legal(part: ToolCallPart, fragment: Fragment) -> bool:
    call = fragment.call
    if type(part.index) is not int or part.index != call.number or not _arguments_legal(part, fragment):
        return False
    if fragment.opens:
        return part.id == call.call_id and part.type is not None
    return fragment.continues_name or not (part.id or _name(part))


def _arguments_legal(part: ToolCallPart, fragment: Fragment) -> bool:
    if part.function is None:
        return True
    raw = bytes(part.function.arguments)
    if raw and raw[0] != 34 and raw != b"null":
        return False
    return not fragment.call.scan.fenced or fragment.clean == fragment.arguments


def _name(part: ToolCallPart) -> str:
    named = part.function or part.custom
    return (named.name or "") if named is not None else ""


def _repaired(members: Members, part: ToolCallPart, fragment: Fragment) -> bytes:
    call = fragment.call
    kind = "custom" if call.custom else "function"
    fixed = {"index": JSON(call.number), **members}
    fixed["index"] = JSON(call.number)
    if fragment.opens:
        fixed["id"] = JSON(call.call_id)
        fixed["type"] = JSON(kind)
    else:
        fixed.pop("id", None)
    if part.function is not None:
        function = split(fixed["function"])
        if not fragment.opens and not fragment.continues_name:
            function.pop("name", None)
        if not _arguments_legal(part, fragment):
            function["arguments"] = JSON(fragment.clean)
        fixed["function"] = join(function)
    return join(fixed)


def empty_call_fragments(state: ChoiceState) -> list[bytes]:
    """Deltas that give `{}` to calls without arguments: a client that parses "" fails."""
    empty = [call for call in state.calls.calls if call.scan.empty and not call.custom and not call.ended]
    for call in empty:
        call.ended = True
    return [b'{"tool_calls":[' + _empty_fragment(call) + b"]}" for call in empty]


def _empty_fragment(call: Call) -> bytes:
    if call.waiting is None:
        return b'{"index":%d,"function":{"arguments":"{}"}}' % call.number
    function = split(call.waiting["function"]) | {"arguments": b'"{}"'}
    return join(call.waiting | {"function": join(function)})


def empty_arguments(body: Members, number: int) -> None:
    """Gives `{}` to a call without arguments, in a whole message."""
    calls = raw_list(body["tool_calls"])
    if "function" in calls[number]:
        function = {**split(calls[number]["function"]), "arguments": b'"{}"'}
        calls[number]["function"] = join(function)
        body["tool_calls"] = join_list([join(call) for call in calls])
