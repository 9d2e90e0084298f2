"""Output items while they are written: the events that open them, surround their deltas and close them.

Each event is (type, members without `type` and `sequence_number`); the encoder numbers them. All bytes around a
delta's text are made once per item. A closed item is complete JSON, the same in item.done and in the terminal
response.
Source: protocol-facts.md section 2.3; openai-python 3.57.0 types/responses/response_*_event.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from strom.core.events import Block
from strom.protocols.openai_responses.schema import ENCODE

Written = tuple[bytes, bytes]
ADDED, DONE = b"response.output_item.added", b"response.output_item.done"


class OpenItem(ABC):
    """Base. `place` is its output_index; `pieces` what its deltas brought; `delta_type`, `before`, `after` a delta's layout."""

    delta_type = b""

    def __init__(self, item_id: str, place: int) -> None:
        self._id = ENCODE(item_id)
        self._place = place
        self.pieces: list[str] = []
        self.at = b'"item_id":%b,"output_index":%d' % (self._id, place)
        self.before = self.at + b',"delta":'
        self.after = b"}\n\n"

    def opening(self) -> list[Written]:
        return [self._item_event(ADDED, self.json(b'""', b"in_progress"))]

    @abstractmethod
    def closing(self, invalid: str) -> tuple[list[Written], bytes]:
        """The closing events, and the finished item."""

    @abstractmethod
    def json(self, text: bytes, status: bytes) -> bytes:
        """The item with `text`, a JSON string; an item in progress is empty."""

    def text(self) -> bytes:
        return ENCODE("".join(self.pieces))

    def _item_event(self, kind: bytes, item: bytes) -> Written:
        return kind, b'"output_index":%d,"item":%b' % (self._place, item)


class TextItem(OpenItem):
    """A message with one text part. Its annotations go out as they come and stand in the finished part."""

    delta_type = b"response.output_text.delta"

    def __init__(self, item_id: str, place: int) -> None:
        super().__init__(item_id, place)
        self.annotations: list[bytes] = []
        self.before = self.at + b',"content_index":0,"delta":'
        self.after = b',"logprobs":[]}\n\n'

    def annotate(self, annotation: bytes) -> Written:
        place = len(self.annotations)
        self.annotations.append(annotation)
        rest = b'%b,"content_index":0,"annotation_index":%d,"annotation":%b' % (self.at, place, annotation)
        return b"response.output_text.annotation.added", rest

    def opening(self) -> list[Written]:
        return [*super().opening(), (b"response.content_part.added", self._part_event(self._part(b'""')))]

    def closing(self, invalid: str) -> tuple[list[Written], bytes]:
        text = self.text()
        item = self.json(text, b"completed")
        return [
            (b"response.output_text.done", b'%b,"content_index":0,"text":%b,"logprobs":[]' % (self.at, text)),
            (b"response.content_part.done", self._part_event(self._part(text))),
            self._item_event(DONE, item),
        ], item

    def json(self, text: bytes, status: bytes) -> bytes:
        content = b"" if status == b"in_progress" else self._part(text)
        return b'{"id":%b,"type":"message","status":"%b","content":[%b],"role":"assistant"}' % (
            self._id,
            status,
            content,
        )

    def _part(self, text: bytes) -> bytes:
        return b'{"type":"output_text","annotations":[%b],"logprobs":[],"text":%b}' % (
            b",".join(self.annotations),
            text,
        )

    def _part_event(self, part: bytes) -> bytes:
        return b'%b,"content_index":0,"part":%b' % (self.at, part)


class RefusalItem(TextItem):
    delta_type = b"response.refusal.delta"

    def __init__(self, item_id: str, place: int) -> None:
        super().__init__(item_id, place)
        self.after = b"}\n\n"

    def closing(self, invalid: str) -> tuple[list[Written], bytes]:
        text = self.text()
        events, item = super().closing(invalid)
        done = (b"response.refusal.done", b'%b,"content_index":0,"refusal":%b' % (self.at, text))
        return [done, *events[1:]], item

    def _part(self, text: bytes) -> bytes:
        return b'{"type":"refusal","refusal":%b}' % text


class ReasoningItem(OpenItem):
    """Reasoning as one summary part: that is what clients show, and what they send back. `encrypted` comes last."""

    delta_type = b"response.reasoning_summary_text.delta"

    def __init__(self, item_id: str, place: int) -> None:
        super().__init__(item_id, place)
        self.encrypted = ""
        self.before = self.at + b',"summary_index":0,"delta":'

    def opening_part(self) -> Written:
        """Goes out before the first delta: an item without text has no part."""
        return b"response.reasoning_summary_part.added", self._part_event(b'""')

    def closing(self, invalid: str) -> tuple[list[Written], bytes]:
        text = self.text()
        item = self.json(text, b"completed")
        parts = [
            (b"response.reasoning_summary_text.done", b'%b,"summary_index":0,"text":%b' % (self.at, text)),
            (b"response.reasoning_summary_part.done", self._part_event(text)),
        ]
        return [*(parts if self.pieces else ()), self._item_event(DONE, item)], item

    def json(self, text: bytes, status: bytes) -> bytes:
        summary = b'{"type":"summary_text","text":%b}' % text if self.pieces else b""
        encrypted = ENCODE(self.encrypted or None)
        return b'{"id":%b,"type":"reasoning","summary":[%b],"encrypted_content":%b}' % (self._id, summary, encrypted)

    def _part_event(self, text: bytes) -> bytes:
        return b'%b,"summary_index":0,"part":{"type":"summary_text","text":%b}' % (self.at, text)


class CallItem(OpenItem):
    """A function call. Arguments that never came are {}: clients parse them."""

    delta_type = b"response.function_call_arguments.delta"
    kind, field, empty = b"function_call", b"arguments", b'"{}"'

    def __init__(self, item_id: str, place: int, block: Block) -> None:
        super().__init__(item_id, place)
        self._names = b'"call_id":%b,"name":%b' % (ENCODE(block.call_id), ENCODE(block.name))
        if block.namespace:
            self._names += b',"namespace":%b' % ENCODE(block.namespace)

    def closing(self, invalid: str) -> tuple[list[Written], bytes]:
        text = self.text() if self.pieces else self.empty
        item = self.json(text, b"incomplete" if invalid else b"completed")
        kind = b"response.%b.done" % self.delta_type.split(b".")[1]
        return [(kind, b'%b,"%b":%b' % (self.at, self.field, text)), self._item_event(DONE, item)], item

    def json(self, text: bytes, status: bytes) -> bytes:
        members = (self._id, self.kind, status, self.field, text, self._names)
        return b'{"id":%b,"type":"%b","status":"%b","%b":%b,%b}' % members


class CustomCallItem(CallItem):
    delta_type = b"response.custom_tool_call_input.delta"
    kind, field, empty = b"custom_tool_call", b"input", b'""'


def whole_item(place: int, item: bytes) -> Iterable[Written]:
    """An item only this protocol knows: complete at its start."""
    rest = b'"output_index":%d,"item":%b' % (place, item)
    return [(ADDED, rest), (DONE, rest)]
