"""What a relayed stream leaves out: items without their deltas, deltas without their items, parts never opened or closed.

Codex reads items alone, the AI SDK and openai-python what comes between their `added` and `done`; some servers send only
one of both, or keep the output for the terminal event. `Shown` follows what the client has seen and says, before each
event of upstream's, which events have to go out first, so that every item and part is opened, filled and closed. A legal
stream needs none. Deltas of a call wait until its name is known: with its item, at the latest in the terminal event.
Source: protocol-facts.md sections 0 (11) and 2.3; streams.md section 2; openai-python 3.57.0 lib/streaming/responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Raw

from strom.core.errors import InvalidStreamEvent
from strom.protocols.openai_responses.schema import (
    ENCODE,
    ITEM,
    PART,
    FrameIn,
    ItemIn,
    PartIn,
    members_of,
    number,
    object_of,
    present,
    read,
    single_line,
    word,
)
from strom.protocols.openai_responses.writing import ADDED, DONE, Written


class Form(NamedTuple):
    """Events of one kind of text. `frame`: the events around it, "" without; `numbered`: the member that numbers its parts."""

    stem: str
    item: str
    field: str
    numbered: str = ""
    frame: str = ""
    part: str = ""


_FORMS = (
    Form("output_text", "message", "text", "content_index", "content_part", "output_text"),
    Form("refusal", "message", "refusal", "content_index", "content_part", "refusal"),
    Form("reasoning_summary_text", "reasoning", "text", "summary_index", "reasoning_summary_part", "summary_text"),
    Form("reasoning_text", "reasoning", "text", "content_index", "", "reasoning_text"),
    Form("function_call_arguments", "function_call", "arguments"),
    Form("custom_tool_call_input", "custom_tool_call", "input"),
)
_BY_STEM = {form.stem: form for form in _FORMS}
_BY_PART = {form.part: form for form in _FORMS if form.part}
_BY_CALL = {form.item: form for form in _FORMS if not form.part}
_PARTS = frozenset(("content_part", "reasoning_summary_part"))
_BEGINNINGS = {"content": b"[]", "summary": b"[]", "arguments": b'""', "input": b'""'}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class Part:
    """One text of an item. `told`: its done event went out; `closed`: that of the part around it, where there is one."""

    __slots__ = ("closed", "form", "index", "opened", "pieces", "told")

    def __init__(self, form: Form, index: int) -> None:
        self.form = form
        self.index = index
        self.pieces: list[str] = []
        self.opened = self.told = self.closed = False


class Item:
    """`raw`: the last whole view of it. `shown`: the client has seen it begin."""

    __slots__ = ("done", "key", "kind", "parts", "place", "raw", "shown")

    def __init__(self, kind: str, key: str, place: int) -> None:
        self.kind = kind
        self.key = key
        self.place = place
        self.raw = Raw()
        self.shown = self.done = False
        self.parts: dict[tuple[str, int], Part] = {}

    @property
    def arguments(self) -> str:
        """What came of a call's arguments."""
        return "".join(piece for part in self.parts.values() for piece in part.pieces)


class Shown:
    """What the client has seen of the answer. `reply_id`: what invented item ids are made of."""

    __slots__ = ("_by_key", "_by_place", "_out", "_reply_id", "pieces")

    def __init__(self, reply_id: str) -> None:
        self._by_key: dict[str, Item] = {}
        self._by_place: dict[int, Item] = {}
        self._out: list[Written] = []
        self._reply_id = reply_id
        self.pieces: list[str] = []
        """Texts of the part the last delta was for: who passes on another delta without asking adds its text here."""

    def before(self, wire: FrameIn, place: int) -> list[Written] | None:
        """The events to be sent before this one, which is then sent; None: it waits, and what it said comes later."""
        name, _, end = wire.type.removeprefix("response.").rpartition(".")
        sends = True
        if name == "output_item":
            self._item_event(wire, place, end)
        elif name in _PARTS:
            self._part_event(wire, place, end)
        elif name in _BY_STEM:
            sends = self._text_event(wire, place, _BY_STEM[name], end)
        return self._take() if sends else None

    def end(self, output: list[Raw], status: str) -> tuple[list[Written], list[bytes]]:
        """What the terminal event tells first or leaves open, and the items that are finished by it.

        Raises InvalidStreamEvent for a call that nobody named.
        """
        finished: list[bytes] = []
        for at, raw in enumerate(output):
            view = _view(raw)
            if view is not None and view.type:
                item = self._known(view, at) or self._new(view.type, word(view.id), self._free(at))
                self._finish(item, view, raw, finished)
        for item in list(self._by_place.values()):
            if not item.done:
                if not item.shown:
                    raise InvalidStreamEvent("The upstream called a tool without saying which.")
                raw = Raw(self._made(item, status))
                self._finish(item, _view(raw) or ItemIn(item.kind), raw, finished)
        return self._take(), finished

    def arguments_of(self, view: ItemIn, place: int) -> str:
        """What came of a call's arguments in deltas, `{}` when nothing did."""
        item = self._known(view, place)
        return (item.arguments if item is not None else "") or "{}"

    # --- events ---

    def _item_event(self, wire: FrameIn, place: int, end: str) -> None:
        view = _view(wire.item)
        if view is None or not view.type:
            return
        item = self._known(view, place) or self._new(view.type, word(view.id), place)
        item.raw = wire.item
        if end == "added":
            item.shown = True
        elif end == "done" and not item.done:
            self._fill(item, view, wire.item)
            item.done = True

    def _part_event(self, wire: FrameIn, place: int, end: str) -> None:
        view = _part(wire.part)
        form = _BY_PART.get(view.type)
        item = self._item_for(wire, place, form.item) if form is not None else None
        if item is None or form is None:
            return
        at = _index(wire)
        if end == "added":
            self._part(item, form, at).opened = True
        elif end == "done":
            part = self._open(item, form, at)
            self._tell(item, part, view.refusal or view.text or "")
            part.closed = True

    def _text_event(self, wire: FrameIn, place: int, form: Form, end: str) -> bool:
        """Whether the event may go out."""
        item = self._item_for(wire, place, form.item)
        if item is None:
            self.pieces = []
            return True
        part = self._open(item, form, _index(wire)) if item.shown else self._part(item, form, 0)
        if end == "delta":
            self.pieces = part.pieces
            part.pieces.append(word(wire.delta))
        elif item.shown:
            self._deliver(item, part, word(getattr(wire, form.field)))
            part.told = True
        elif not part.pieces:
            part.pieces.append(word(getattr(wire, form.field)))
        return item.shown

    # --- items and parts ---

    def _known(self, view: ItemIn, place: int) -> Item | None:
        found = self._by_key.get(word(view.id)) or self._by_place.get(place)
        return found if found is not None and found.kind == view.type else None

    def _new(self, kind: str, key: str, place: int) -> Item:
        key = key or f"{_PREFIXES.get(kind, 'item')}_{self._reply_id}_{place}"
        item = self._by_key[key] = self._by_place[place] = Item(kind, key, place)
        return item

    def _free(self, place: int) -> int:
        return place if place not in self._by_place else max(self._by_place) + 1

    def _item_for(self, wire: FrameIn, place: int, kind: str) -> Item | None:
        """The open item an event is for, begun if the client has not seen it; None when it fits to none."""
        item = self._by_key.get(word(wire.item_id)) or self._by_place.get(place)
        if item is None:
            item = self._new(kind, word(wire.item_id), place)
            if kind not in _BY_CALL:
                self._begin(item, Raw(self._made(item, "in_progress")))
        return item if item.kind == kind and not item.done else None

    def _begin(self, item: Item, raw: Raw) -> None:
        """output_item.added with the item as it was before anything came of it."""
        members = {**members_of(raw), "id": Raw(ENCODE(item.key))}
        if item.kind in _PREFIXES:
            members |= {name: Raw(empty) for name, empty in _BEGINNINGS.items() if name in members}
            if "status" in members:
                members["status"] = Raw(b'"in_progress"')
        self._out.append(_item_written(ADDED, item, object_of(members)))
        item.shown, item.raw = True, raw

    def _part(self, item: Item, form: Form, at: int) -> Part:
        part = item.parts.get((form.numbered, at))
        if part is None:
            part = item.parts[form.numbered, at] = Part(form, at)
        return part

    def _open(self, item: Item, form: Form, at: int) -> Part:
        part = self._part(item, form, at)
        if part.form.frame and not part.opened:
            self._write(item, part, f"{part.form.frame}.added", {"part": _part_json(part.form, "")})
        part.opened = True
        return part

    # --- filling ---

    def _finish(self, item: Item, view: ItemIn, raw: Raw, finished: list[bytes]) -> None:
        """The whole of what is missing of an item, its end included."""
        if item.done:
            return
        self._fill(item, view, raw)
        item.done = True
        data = with_arguments(raw, item.arguments or "{}") or single_line(bytes(raw))
        self._out.append(_item_written(DONE, item, data))
        finished.append(data)

    def _fill(self, item: Item, view: ItemIn, raw: Raw) -> None:
        """All that has to stand before output_item.done."""
        held = [part for part in item.parts.values() if part.pieces and not item.shown]
        texts = [part.pieces[:] for part in held]
        if not item.shown:
            self._begin(item, raw)
        for part, pieces in zip(held, texts, strict=True):
            part.pieces.clear()
            self._deliver(item, part, "".join(pieces))
        for form, at, text in _texts(item, view):
            if text or not form.part:
                self._tell(item, self._open(item, form, at), text)
        for part in item.parts.values():
            self._tell(item, part, "")
            if part.form.frame and part.opened and not part.closed:
                body = _part_json(part.form, "".join(part.pieces))
                self._write(item, part, f"{part.form.frame}.done", {"part": body})
                part.closed = True

    def _deliver(self, item: Item, part: Part, text: str) -> None:
        """A text that came in no delta, as one."""
        if text and not part.pieces:
            part.pieces.append(text)
            self._write(item, part, f"{part.form.stem}.delta", {"delta": ENCODE(text)})

    def _tell(self, item: Item, part: Part, text: str) -> None:
        self._deliver(item, part, text)
        if part.told or not (part.pieces or not part.form.part):
            return
        part.told = True
        whole = "".join(part.pieces) or ("{}" if item.kind == "function_call" else "")
        self._write(item, part, f"{part.form.stem}.done", {part.form.field: ENCODE(whole)})

    def _write(self, item: Item, part: Part, kind: str, values: dict[str, bytes]) -> None:
        at = {part.form.numbered: b"%d" % part.index} if part.form.numbered else {}
        logprobs = {"logprobs": b"[]"} if kind.startswith("output_text") else {}
        members = {"item_id": ENCODE(item.key), "output_index": b"%d" % item.place, **at, **values, **logprobs}
        self._out.append(
            (f"response.{kind}".encode(), b",".join(b'"%b":%b' % (n.encode(), v) for n, v in members.items()))
        )

    def _made(self, item: Item, status: str) -> bytes:
        """The item from what came of it."""
        base = members_of(item.raw) if present(item.raw) else {}
        members = {"id": Raw(ENCODE(item.key)), "type": Raw(ENCODE(item.kind)), **base}
        texts = {place: (part.form, "".join(part.pieces)) for place, part in item.parts.items()}
        if item.kind in _BY_CALL:
            members[_BY_CALL[item.kind].field] = Raw(ENCODE(item.arguments))
        else:
            for name, of in (("content", "content_index"), ("summary", "summary_index")):
                found = [_part_json(form, text) for (index, _), (form, text) in sorted(texts.items()) if index == of]
                if found or name == ("content" if item.kind == "message" else "summary"):
                    members[name] = Raw(b"[" + b",".join(found) + b"]")
        if item.kind != "reasoning":
            members["status"] = Raw(ENCODE(status))
        if item.kind == "message":
            members["role"] = Raw(b'"assistant"')
        return object_of(members)

    def _take(self) -> list[Written]:
        out, self._out = self._out, []
        return out


def with_arguments(raw: Raw, arguments: str) -> bytes | None:
    """A function call without arguments, with these; None for any other item, and for a call that was cut."""
    view = _view(raw)
    if view is None or view.type != "function_call" or word(view.arguments):
        return None
    members = members_of(raw)
    if members.get("status") == Raw(b'"incomplete"'):
        return None
    return object_of({**members, "arguments": Raw(ENCODE(arguments))})


def with_all_arguments(output: list[Raw], arguments: Callable[[ItemIn, int], str]) -> bytes | None:
    """An output list in which every call has arguments; None when there is nothing to change."""
    changed = [with_arguments(raw, arguments(_view(raw) or ItemIn(), at)) for at, raw in enumerate(output)]
    if not any(changed):
        return None
    return b"[" + b",".join(new or bytes(old) for new, old in zip(changed, output, strict=True)) + b"]"


def _texts(item: Item, view: ItemIn) -> list[tuple[Form, int, str]]:
    """The texts in a whole item: what must have come in deltas."""
    if item.kind in _BY_CALL:
        form = _BY_CALL[item.kind]
        return [(form, 0, word(getattr(view, form.field)))]
    content = [PartIn("output_text", view.content)] if isinstance(view.content, str) else view.content or []
    found = [(_BY_PART[p.type], at, p.refusal or p.text or "") for at, p in enumerate(content) if p.type in _BY_PART]
    if item.kind != "reasoning":
        return found if item.kind == "message" else []
    found += [(_BY_PART["summary_text"], at, part.text or "") for at, part in enumerate(view.summary or ())]
    came = {part.form.numbered for part in item.parts.values() if part.pieces}
    # summary and full text need not both be streamed
    return [text for text in found if not came or text[0].numbered in came]


def _index(wire: FrameIn) -> int:
    index = number(wire.content_index)
    return index if index is not None else number(wire.summary_index) or 0


def _view(raw: Raw) -> ItemIn | None:
    try:
        return read(ITEM, raw)
    except ValueError:
        return None


def _part(raw: Raw) -> PartIn:
    try:
        return read(PART, raw)
    except ValueError:
        return PartIn()


def _part_json(form: Form, text: str) -> bytes:
    more = b',"annotations":[],"logprobs":[]' if form.part == "output_text" else b""
    return b'{"type":"%b","%b":%b%b}' % (form.part.encode(), form.field.encode(), ENCODE(text), more)


def _item_written(kind: bytes, item: Item, data: bytes) -> Written:
    return kind, b'"output_index":%d,"item":%b' % (item.place, data)
