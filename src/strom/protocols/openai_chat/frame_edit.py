"""Changes single members of a chunk, at any depth, and leaves the bytes of all others as they came.

An edit is opened only as deep as something in it is changed: unknown fields survive on every level.
"""

from __future__ import annotations

import msgspec

from strom.wire.splice import join, split

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
Members = dict[str, bytes]


class ChoiceEdit:
    """One choice: its members, and those of its delta (of its message, in a whole reply)."""

    __slots__ = ("body", "key", "members")

    def __init__(self, raw: msgspec.Raw) -> None:
        self.members = split(bytes(raw))
        self.key = "delta" if "delta" in self.members or "message" not in self.members else "message"
        body = self.members.get(self.key, b"null")
        self.body: Members = {} if body == b"null" else split(body)

    def join(self) -> bytes:
        return join({**self.members, self.key: join(self.body)})


class FrameEdit:
    """A chunk's JSON. `changed`: it has to be written anew."""

    __slots__ = ("_choices", "_data", "_members", "changed")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._members: Members | None = None
        self._choices: list[ChoiceEdit] | None = None
        self.changed = False

    @property
    def members(self) -> Members:
        if self._members is None:
            self._members = split(self._data)
        return self._members

    @property
    def choices(self) -> list[ChoiceEdit]:
        if self._choices is None:
            raw = self.members.get("choices", b"null")
            self._choices = [] if raw == b"null" else [ChoiceEdit(choice) for choice in _LIST.decode(raw)]
        return self._choices

    def set(self, name: str, value: bytes) -> None:
        self.members[name] = value
        self.changed = True

    def remove(self, name: str) -> None:
        self.changed |= self.members.pop(name, None) is not None

    def body(self, number: int) -> Members:
        """The delta (or message) of a choice, to be changed."""
        self.changed = True
        return self.choices[number].body

    def data(self) -> bytes:
        """The JSON, on one line."""
        if not self.changed:
            return one_line(self._data)
        members = dict(self.members)
        if self._choices is not None:
            members["choices"] = join_list([choice.join() for choice in self._choices])
        return one_line(join(members))


def raw_list(data: bytes) -> list[Members]:
    """The objects of a list, opened."""
    return [split(bytes(item)) for item in _LIST.decode(data)]


def join_list(values: list[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


def one_line(data: bytes) -> bytes:
    """JSON spread over several data lines, on one: an unescaped line end can only be white space between tokens."""
    return data.replace(b"\n", b" ") if data.find(b"\n") >= 0 else data


def frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
