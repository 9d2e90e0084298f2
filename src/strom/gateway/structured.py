"""Structured output from a backend that cannot enforce it: asked for in the prompt, checked before it counts as success.

    wanted ──backend enforces it──▶ passed on in the backend's words
           └─cannot──▶ "refuse": Unsupported, nothing is sent
                     └▶ "prompt": the schema goes into the system text; the answer's JSON is followed while it streams
                        (a Markdown fence around it is taken off), and judged when the model says that it is finished

Invariant: of an answer that does not fit no success terminator is seen: the stream ends in `Failed`, which becomes a 502, or
an in-band error once deltas are out. An answer that ended early, called tools or was refused has its own reason and is not
judged. Why no library judges: docs/decisions/0013-answers-checked-by-a-subset.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.core import json_schema
from strom.core.errors import BadRequest, InvalidAnswer, Unsupported
from strom.core.events import BlockStarted, Event, Failed, Finished, TextDelta
from strom.core.json_scan import JsonScan
from strom.core.messages import Message, Request, ResponseFormat, TextPart
from strom.protocols.codec import Lone, StreamDecoder
from strom.upstreams.upstream import Upstream

FallbackMode = Literal["prompt", "refuse"]
_ONLY_SCHEMAS = frozenset(("anthropic",))
"""Protocols whose backends enforce a schema but know no json_object. Source: protocol-facts.md section 6.8."""
_SYSTEM = ("system", "developer")
_INSTRUCTION = (
    "Give the final answer as one valid JSON {what}, and nothing else: no prose around it, no Markdown fence. "
    "This binds the answer only, not calls of tools."
)
_DECODE = msgspec.json.Decoder().decode


class Fallback(msgspec.Struct, frozen=True):
    """`request` asks for the format in its text; `note` is for the block's `dropped`."""

    request: Request
    check: AnswerCheck
    note: str


def fall_back(request: Request, upstream: Upstream, mode: FallbackMode) -> Fallback | None:
    """None when no format is wanted, or the backend enforces it. Raises Unsupported, and BadRequest for a broken schema."""
    wanted = request.response_format
    if wanted is None or _enforces(upstream, wanted):
        return None
    if mode == "refuse":
        raise Unsupported(
            f"The backend {upstream.name!r} cannot enforce response_format {wanted.kind}, and this gateway does not imitate "
            'it ([server] structured_fallback = "refuse").',
            param="response_format",
        )
    try:
        schema = json_schema.parse_schema(wanted.schema)
    except ValueError as error:
        raise BadRequest(f"response_format: {error}", param="response_format") from None
    asking = msgspec.structs.replace(
        request, messages=_with_instruction(request.messages, wanted), response_format=None
    )
    return Fallback(asking, AnswerCheck(wanted.kind, schema), _note(wanted, schema))


def _enforces(upstream: Upstream, wanted: ResponseFormat) -> bool:
    if not upstream.quirks.response_format:
        return False
    return wanted.kind == "json_schema" or upstream.protocol not in _ONLY_SCHEMAS


def _note(wanted: ResponseFormat, schema: json_schema.Schema) -> str:
    left_out = json_schema.unchecked(schema)
    but = f", but for {', '.join(left_out)}" if left_out else ""
    return f"response_format {wanted.kind} (put into the prompt; the answer is checked{but})"


def _with_instruction(messages: tuple[Message, ...], wanted: ResponseFormat) -> tuple[Message, ...]:
    """At the end of the leading system text, so that what stands before it keeps its place in a prefix cache."""
    part = TextPart(_instruction(wanted))
    leading = 0
    while leading < len(messages) and messages[leading].role in _SYSTEM:
        leading += 1
    if leading == 0:
        return (Message("system", (part,)), *messages)
    last = messages[leading - 1]
    grown = msgspec.structs.replace(last, parts=(*last.parts, part))
    return (*messages[: leading - 1], grown, *messages[leading:])


def _instruction(wanted: ResponseFormat) -> str:
    if wanted.kind == "json_object" or not wanted.schema:
        return _INSTRUCTION.format(what="object")
    words = [_INSTRUCTION.format(what="value"), f"It has to fit this JSON schema:\n{wanted.schema}"]
    if wanted.description:
        words.append(f"What it is for: {wanted.description}")
    return "\n".join(words)


class AnswerCheck:
    """Follows the events of one attempt. Text goes on as it comes, but for a fence around the JSON and what follows it."""

    def __init__(self, kind: str, schema: json_schema.Schema) -> None:
        self._kind = kind
        self._schema = schema
        self._scan = JsonScan()
        self._text_blocks: set[int] = set()
        self._spoken_otherwise = False
        self._failed = False

    def feed(self, events: list[Event]) -> list[Event]:
        passed: list[Event] = []
        for event in events:
            if self._failed:
                break
            checked = self._checked(event)
            if checked is not None:
                passed.append(checked)
        return passed

    def _checked(self, event: Event) -> Event | None:
        match event:
            case TextDelta(index, text) if index in self._text_blocks:
                kept = self._scan.feed(text)
                return TextDelta(index, kept) if kept else None
            case BlockStarted(index, block):
                if block.kind == "text":
                    self._text_blocks.add(index)
                elif block.kind in ("tool_call", "refusal"):
                    self._spoken_otherwise = True
            case Finished(reason) if reason in ("stop", "stop_sequence") and not self._spoken_otherwise:
                problem = self._problem()
                if problem:
                    self._failed = True
                    return Failed(InvalidAnswer(f"The model's answer is not the JSON that was asked for: {problem}"))
            case _:
                pass
        return event

    def _problem(self) -> str:
        text = self._scan.text
        if not text.strip():
            return "it is empty"
        try:
            value = _DECODE(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            return f"it is not valid JSON ({error})"
        if self._kind == "json_object" and not isinstance(value, dict):
            return "it is JSON, but no object"
        return json_schema.problem_with(value, self._schema)


class CheckedDecoder:
    """A stream decoder whose success is the check's as well."""

    __slots__ = ("_check", "_decoder")

    def __init__(self, decoder: StreamDecoder, check: AnswerCheck) -> None:
        self._decoder = decoder
        self._check = check

    def feed(self, data: bytes) -> list[Event]:
        return self._check.feed(self._decoder.feed(data))

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        return None

    def finish(self) -> list[Event]:
        return self._check.feed(self._decoder.finish())
