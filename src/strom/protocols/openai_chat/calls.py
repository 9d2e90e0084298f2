"""Decides which tool call a fragment belongs to, and whether it opens a new one.

Rules (streams.md section 4): fragments belong to their index; a new id with a name opens a call; a new id without a name
continues the open one; a missing index is the open call's; a missing id is invented once and kept. What real servers add:
every call has index 0 (the new id with a name decides), no call has an id (a name that comes after complete arguments
decides), the name is repeated in every delta (llama_cpp.server, `tools_named`), or comes in two pieces before any argument.
Used by the decoder and by the relay, so that both see the same calls.
"""

from __future__ import annotations

import hashlib

from strom.core.json_scan import JsonScan
from strom.protocols.openai_chat.schema import ToolCallPart, arguments_text, id_text


class Call:
    """One call. `block`: the decoder's block index once it is started. `ended`: nothing more is passed on."""

    __slots__ = ("block", "call_id", "custom", "ended", "held", "name", "number", "scan", "their_id", "waiting")

    def __init__(self, number: int, their_id: str, call_id: str, *, custom: bool) -> None:
        self.number = number
        self.their_id = their_id
        self.call_id = call_id
        self.custom = custom
        self.name = ""
        self.scan = JsonScan()
        self.block: int | None = None
        self.held: list[str] = []  # arguments that came before the name did
        self.ended = False
        self.waiting: dict[str, bytes] | None = None  # the relay's: the opening part, while its name is not whole

    @property
    def complete(self) -> bool:
        return self.custom or self.scan.complete


class Fragment:
    """A fragment that found its call. `arguments`: as they came; `clean`: what of them is to be passed on.

    `continues_name`: it brings one more piece of the name.
    """

    __slots__ = ("arguments", "call", "clean", "continues_name", "opens")

    def __init__(self, call: Call, arguments: str, *, opens: bool, continues_name: bool) -> None:
        self.call = call
        self.continues_name = continues_name
        self.arguments = arguments
        self.clean = arguments if call.custom else call.scan.feed(arguments)
        self.opens = opens


_NO_CALLS: list[Call] = []
_NONE_BY_INDEX: dict[int, Call] = {}
_NONE_BY_ID: dict[str, Call] = {}
"""Shared by all answers without calls, which most are. Never written to."""


class CallTracker:
    """All calls of one answer, in order of opening."""

    __slots__ = ("_by_index", "_ids", "_last", "_seed", "calls")

    def __init__(self) -> None:
        self.calls = _NO_CALLS
        self._by_index = _NONE_BY_INDEX
        self._ids = _NONE_BY_ID
        self._last: Call | None = None
        self._seed = ""

    def seed(self, response_id: str) -> None:
        """What invented ids are made of, so that they differ from answer to answer."""
        self._seed = response_id

    def place(self, part: ToolCallPart) -> Fragment:
        custom = part.type == "custom" or (part.custom is not None and part.function is None)
        name, arguments = _contents(part, custom=custom)
        index, their_id = _number(part.index), id_text(part.id)
        call = self._candidate(index, their_id)
        opens = call is None or _opens(call, their_id, name, arguments)
        if call is None or opens:
            call = self._open(index, their_id, custom=custom)
        more = (
            bool(name) and name != call.name and (call.scan.empty or not call.name)
        )  # one more piece before any argument
        if more:
            call.name += name
        self._last = call
        return Fragment(call, arguments, opens=opens, continues_name=more and not opens)

    def _candidate(self, index: int | None, their_id: str) -> Call | None:
        if index is not None:
            return self._by_index.get(index)
        return self._ids.get(their_id) or self._last

    def _open(self, index: int | None, their_id: str, *, custom: bool) -> Call:
        number = len(self.calls)
        if not number:
            self.calls, self._by_index, self._ids = [], {}, {}
        call_id = their_id if their_id and their_id not in self._ids else self._invent(number)
        call = Call(number, their_id, call_id, custom=custom)
        self.calls.append(call)
        self._ids[call_id] = call
        if index is not None:
            self._by_index[index] = call
        return call

    def _invent(self, number: int) -> str:
        digest = hashlib.sha256(f"{self._seed}/{number}".encode("utf-8", "surrogatepass")).hexdigest()
        return f"call_{digest[:24]}"


def _contents(part: ToolCallPart, *, custom: bool) -> tuple[str, str]:
    if custom:
        piece = part.custom
        return (piece.name or "", piece.input or "") if piece is not None else ("", "")
    function = part.function
    return (function.name or "", arguments_text(function.arguments)) if function is not None else ("", "")


def _number(index: float | str | None) -> int | None:
    if isinstance(index, str):
        return int(index) if index.isdecimal() and len(index) < 9 else None
    return int(index) if index is not None and 0 <= index < 1e9 else None


def _opens(call: Call, their_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment that could continue `call` is the first of another one."""
    if not name:
        return False
    if their_id and their_id != call.their_id and (call.their_id or not call.scan.empty):
        return True
    return call.scan.complete and arguments.lstrip().startswith("{")
