"""The messages of an Ollama client → canonical messages.

Calls without an id get one from their place in the history. A result goes to the call it names by `tool_call_id`, else to the
first call of the last assistant turn that has its `tool_name` and no result yet, else to the first without one. Images are
raw base64 without a media type, which is read off the first bytes.
Source: protocol-facts.md sections 4, 6.3, 6.4; ollama-python 0.6.3, Message.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import ImagePart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from strom.protocols.ollama import schema
from strom.protocols.ollama.arguments import arguments_text

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_MEDIA_TYPES = (("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp"))
"""How base64 of each kind of image begins."""


class HistoryReader:
    """Reads one request's messages, in order."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._waiting: list[ToolCallPart] = []  # calls of the last assistant turn without a result yet
        self._results: list[ToolResultPart] = []  # of `tool` messages in a row

    def read(self, messages: list[schema.HistoryMessageIn]) -> Iterator[Message]:
        """Raises BadRequest."""
        for at, message in enumerate(messages):
            if message.role == "tool":
                self._results.append(self._result(at, message))
                continue
            yield from self._joined_results()
            role = _ROLES.get(message.role)
            if role is None:
                raise BadRequest(f"messages[{at}].role must be system, user, assistant or tool", param="messages")
            yield Message(role, tuple(self._parts(at, message)))
        yield from self._joined_results()

    def _joined_results(self) -> Iterator[Message]:
        if self._results:
            yield Message("user", tuple(self._results))
            self._results = []

    def _parts(self, at: int, message: schema.HistoryMessageIn) -> Iterator[Part]:
        if message.thinking:
            yield ThinkingPart(message.thinking)
        if message.content:
            yield TextPart(message.content)
        yield from images(message.images)
        if message.role == "assistant":
            self._waiting = [self._call(at, number, call) for number, call in enumerate(message.tool_calls or ())]
            yield from self._waiting

    def _call(self, at: int, number: int, call: schema.CallIn) -> ToolCallPart:
        function = call.function
        if function is None or not function.name:
            raise BadRequest(f"messages[{at}].tool_calls[{number}] has no function with a name", param="messages")
        try:
            arguments = arguments_text(function.arguments)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"messages[{at}].tool_calls[{number}].function.arguments: {error}"
            raise BadRequest(message, param="messages") from None
        call_id = "" if call.id is None else str(call.id)
        if not call_id or call_id in self._ids:
            call_id = f"call_{at}_{number}"
        self._ids.add(call_id)
        return ToolCallPart(call_id, function.name, arguments)

    def _result(self, at: int, message: schema.HistoryMessageIn) -> ToolResultPart:
        name = message.tool_name or message.name or ""
        call = self._take_call(message.tool_call_id or "", name)
        call_id = message.tool_call_id or (call.call_id if call is not None else f"call_{at}_0")
        text = (TextPart(message.content),) if message.content else ()
        return ToolResultPart(call_id, (*text, *images(message.images)), name=name or (call.name if call else ""))

    def _take_call(self, call_id: str, name: str) -> ToolCallPart | None:
        """The call a result is for; it waits no longer."""
        waiting = self._waiting
        if call_id:
            fitting = [call for call in waiting if call.call_id == call_id]
        else:
            fitting = [call for call in waiting if call.name == name] or waiting
        if not fitting:
            return None
        found = fitting[0]
        waiting.remove(found)
        return found


def images(values: list[str] | None) -> Iterator[ImagePart]:
    """Raw base64; a data: URI or an address from clients that mix up the protocols is taken as well."""
    for value in values or ():
        head, comma, _ = value[:100].partition(",")
        if value.startswith("data:") and comma and head.endswith(";base64"):
            yield ImagePart(head[len("data:") : -len(";base64")], value[len(head) + 1 :])
        elif value.startswith(("http://", "https://")):
            yield ImagePart(url=value)
        else:
            yield ImagePart(next((kind for start, kind in _MEDIA_TYPES if value.startswith(start)), ""), value)
