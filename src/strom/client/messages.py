"""Messages as a program writes them, and what it may write instead: a text, a dict as OpenAI knows it, or a list of these.

Inside the library messages are canonical (`core.messages`); this module is the way in, and the way to JSON and back for
sessions. A message of the model keeps all its parts, signatures of thinking included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from strom.client.media import Audio, Document, Image, Medium, Text, Video
from strom.client.signals import ToolOutcome
from strom.core import messages as core
from strom.core.errors import BadRequest
from strom.protocols.codec import Codec

Role = Literal["system", "user", "assistant"]
Content = str | Medium | Sequence[str | Medium]


class Message(msgspec.Struct, frozen=True):
    """One message. `content`: text, or a mix of texts and media in reading order.

    >>> Message("user", ["What is this?", Image.from_url("https://example.org/cat.png")]).role
    'user'
    """

    role: Role
    content: Content

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.role not in get_args(Role):
            known = ", ".join(get_args(Role))
            hint = "; a result of a tool is written as a dict, or left to run_tools" if str(self.role) == "tool" else ""
            raise BadRequest(f"A message has one of the roles {known}, not {self.role!r}{hint}.", param="messages")

    @classmethod
    def system(cls, text: str) -> Message:
        return cls("system", text)

    @classmethod
    def user(cls, *content: str | Medium) -> Message:
        return cls("user", content)

    @classmethod
    def assistant(cls, text: str) -> Message:
        return cls("assistant", text)

    @classmethod
    def from_file(cls, path: str | Path, role: Role = "user", **variables: object) -> Message:
        """A prompt file; `{{name}}` is replaced by the variable of that name. See `prompt`."""
        return cls(role, load_prompt(path, **variables))

    def canonical(self) -> core.Message:
        content = self.content
        pieces = [content] if isinstance(content, str | Text | Image | Audio | Video | Document) else list(content)
        parts = tuple(core.TextPart(piece) if isinstance(piece, str) else piece.canonical() for piece in pieces)
        return core.Message(self.role, parts)


MessageLike = str | Message | core.Message | Mapping[str, Any]
Messages = MessageLike | Iterable[MessageLike]


def to_canonical(given: Messages, chat: Codec) -> tuple[core.Message, ...]:
    """Raises BadRequest. `chat`: the codec that reads dicts."""
    if isinstance(given, str | Message | core.Message | Mapping):
        given = [given]
    if not isinstance(given, Iterable):
        raise BadRequest(f"Messages cannot be a {type(given).__name__}.", param="messages")
    found: list[core.Message] = []
    dicts: list[Mapping[str, Any]] = []
    for item in given:
        if isinstance(item, Mapping):
            dicts.append(item)
            continue
        found += _from_dicts(dicts, chat)
        dicts = []
        found.append(_one(item))
    found += _from_dicts(dicts, chat)
    if not found:
        raise BadRequest("There is no message.", param="messages")
    if all(isinstance(part, core.TextPart) and not part.text for message in found for part in message.parts):
        raise BadRequest("There is no message with anything in it.", param="messages")
    return tuple(found)


def _one(item: object) -> core.Message:
    match item:
        case str():
            return core.Message("user", (core.TextPart(item),))
        case Message():
            return item.canonical()
        case core.Message():
            return item
        case _:
            raise BadRequest(f"A message cannot be a {type(item).__name__}.", param="messages")


def _from_dicts(dicts: list[Mapping[str, Any]], chat: Codec) -> tuple[core.Message, ...]:
    """Several in a row are read together: a result of a tool belongs to the call before it."""
    if not dicts:
        return ()
    body = msgspec.json.encode({"model": "any", "messages": dicts})
    return chat.decode_request(body).messages


# --- prompt files ----------------------------------------------------------------------------------


def results_message(outcomes: Sequence[ToolOutcome]) -> core.Message:
    """What the model is told of the tools of one turn, in call order."""
    results = []
    for outcome in outcomes:
        content = (core.TextPart(outcome.for_model),)
        failed = True if outcome.error else None
        results.append(core.ToolResultPart(outcome.call.id, content, is_error=failed, name=outcome.call.name))
    return core.Message("user", tuple(results))


def load_prompt(path: str | Path, **variables: object) -> str:
    """The text of a prompt file, filled in. Raises BadRequest when it cannot be read or a variable is missing."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"The prompt {path} cannot be read: {error}", param="messages") from error
    return fill(text, **variables)


def fill(template: str, **variables: object) -> str:
    """`{{name}}` → the variable; a Path gives the text of its file. What is filled in is not looked at again.

    >>> fill("Dear {{ name }}", name="{{you}}")
    'Dear {{you}}'
    """
    head, *rest = template.split("{{")
    pieces = [head]
    for piece in rest:
        name, closed, after = piece.partition("}}")
        if not closed:
            raise BadRequest("The prompt has an opening {{ without its }}.", param="messages")
        pieces += [_value(name.strip(), variables), after]
    return "".join(pieces)


def _value(name: str, variables: Mapping[str, object]) -> str:
    if name not in variables:
        known = ", ".join(sorted(variables)) or "none"
        raise BadRequest(f"The prompt needs the variable {name!r}; given are {known}.", param="messages")
    value = variables[name]
    return load_file(value) if isinstance(value, Path) else str(value)


def load_file(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"The file {path} cannot be read: {error}", param="messages") from error


# --- JSON, for sessions ----------------------------------------------------------------------------

_PARTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(core.Part)}


def message_to_json(message: core.Message) -> dict[str, Any]:
    parts = [{"type": type(part).__name__, **_part_to_json(part)} for part in message.parts]
    return {"role": message.role, "parts": parts}


def message_from_json(data: Mapping[str, Any]) -> core.Message:
    """Raises msgspec.ValidationError, KeyError."""
    parts = tuple(_part_from_json(dict(part)) for part in data["parts"])
    return core.Message(msgspec.convert(data["role"], core.Role), parts)


def _part_to_json(part: core.Part) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(part)
    if isinstance(part, core.ToolResultPart):
        members["content"] = [{"type": type(inner).__name__, **_part_to_json(inner)} for inner in part.content]
    return members


def _part_from_json(members: dict[str, Any]) -> core.Part:
    kind = _PARTS[members.pop("type")]
    if kind is core.ToolResultPart:
        inner = tuple(_part_from_json(dict(part)) for part in members.pop("content"))
        result = core.ToolResultPart(**{name: _plain(name, value) for name, value in members.items()})
        return msgspec.structs.replace(result, content=inner)
    part: core.Part = msgspec.convert(members, kind)
    return part


def _plain(name: str, value: Any) -> Any:
    return core.Json(value["text"]) if name == "cache_control" and value is not None else value
