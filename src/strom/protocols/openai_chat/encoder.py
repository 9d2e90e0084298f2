"""Writes a Chat stream: canonical events in, bytes out, in the layout of streams.md section 2.

(1) the role alone; (2) one frame per delta; (3) the finish frame, empty but for its reason; (4) the usage frame if the client
asked for it, else usage rides on the finish frame; (5) one `data: [DONE]`. `id`, `created` and `model` are the same on every
frame. The finish frame is held until `Completed`, so that the last reason and the last usage win and the routing block, which
rides on the last data frame, knows the end. Usage stands exactly once (estimated where nobody reported it), on earlier frames
it is null if the client asked for the usage frame. All bytes around a delta's text are made once, at the start.
Source: protocol-facts.md sections 1.3 and 6.1; streams.md sections 2 to 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strom.core.errors import StromError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_chat.errors import error_json
from strom.protocols.openai_chat.finish import chat_reason
from strom.protocols.openai_chat.usage import usage_json
from strom.wire.splice import append_member

JSON = msgspec.json.Encoder().encode
HEARTBEAT = b": keep-alive\n\n"
DONE_FRAME = b"data: [DONE]\n\n"
THINK_OPEN, THINK_CLOSE = "<think>\n", "\n</think>\n\n"


class ChatEncoder:
    """See codec.StreamEncoder."""

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._out: list[bytes] = []
        self._head = b""
        self._tail = b""
        self._started = False
        self._characters = 0
        self._usage: Usage | None = None
        self._finished = Finished("stop")
        self._kinds: dict[int, str] = {}
        self._calls: dict[int, _OpenCall] = {}
        self._call_count = 0
        self._thinking_as_text = False  # a <think> tag is open in the content

    def encode(self, events: list[Event]) -> bytes:
        for event in events:
            _HANDLERS[type(event)](self, event)
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def continues(self, kind: type[Event], index: int) -> Callable[[str], bytes] | None:
        if not self._started or self._thinking_as_text or self._context.continuous_usage:
            return None
        if kind is TextDelta and self._kinds.get(index) != "refusal":
            return self._more_text
        return self._more_thinking if kind is ThinkingDelta and self._context.reasoning == "native" else None

    def _more_text(self, text: str) -> bytes:
        self._characters += len(text)
        return self._content_head + JSON(text) + self._plain_end

    def _more_thinking(self, text: str) -> bytes:
        self._characters += len(text)
        return self._reasoning_head + JSON(text) + self._plain_end

    def fail(self, error: StromError) -> bytes:
        return fail_frame(error)

    def heartbeat(self) -> bytes:
        return HEARTBEAT

    def _start(self, event: Started) -> None:
        """A second one (another attempt) changes nothing."""
        if self._started:
            return
        self._started = True
        context = self._context
        self._head = b"data: " + envelope(chat_id(event.response_id, context), context)
        nulled = b',"usage":null' if context.include_usage and not context.continuous_usage else b""
        self._tail = b'},"logprobs":null,"finish_reason":null}]' + nulled
        self._content_head = self._head + b'{"index":0,"delta":{"content":'
        self._reasoning_head = self._head + b'{"index":0,"delta":{"reasoning_content":'
        self._plain_end = self._tail + b"}\n\n"
        self._emit(b'"role":"assistant","content":""')

    def _emit(self, delta: bytes) -> None:
        """One frame whose delta has these members."""
        self._out.append(self._head + b'{"index":0,"delta":{' + delta + self._tail + self._running_usage() + b"}\n\n")

    def _running_usage(self) -> bytes:
        if not self._context.continuous_usage:
            return b""
        return b',"usage":' + usage_json(self._usage, self._context.input_estimate, self._characters)

    def _text(self, event: TextDelta) -> None:
        text = event.text
        self._characters += len(text)
        if self._thinking_as_text:
            self._close_thinking()
        if self._kinds.get(event.index) == "refusal":
            self._emit(b'"refusal":' + JSON(text))
        elif self._context.continuous_usage:
            self._emit(b'"content":' + JSON(text))
        else:
            self._out.append(self._content_head + JSON(text) + self._plain_end)

    def _thinking(self, event: ThinkingDelta) -> None:
        text = event.text
        self._characters += len(text)
        mode = self._context.reasoning
        if mode == "native":
            if self._context.continuous_usage:
                self._emit(b'"reasoning_content":' + JSON(text))
            else:
                self._out.append(self._reasoning_head + JSON(text) + self._plain_end)
        elif mode == "text":
            if not self._thinking_as_text:
                self._thinking_as_text = True
                self._emit(b'"content":' + JSON(THINK_OPEN))
            self._emit(b'"content":' + JSON(text))

    def _close_thinking(self) -> None:
        if self._thinking_as_text:
            self._thinking_as_text = False
            self._emit(b'"content":' + JSON(THINK_CLOSE))

    def _block(self, event: BlockStarted) -> None:
        block = event.block
        self._kinds[event.index] = block.kind
        if block.kind == "tool_call":
            self._close_thinking()
            self._open_call(event.index, block)

    def _open_call(self, index: int, block: Block) -> None:
        call = _OpenCall(self._call_count, custom=block.custom)
        self._call_count += 1
        self._calls[index] = call
        name = JSON(block.name)
        if block.custom:
            contents = b'"type":"custom","custom":{"name":' + name + b',"input":""}'
        else:
            contents = b'"type":"function","function":{"name":' + name + b',"arguments":""}'
        number = str(call.number).encode("ascii")
        self._emit(b'"tool_calls":[{"index":' + number + b',"id":' + JSON(block.call_id) + b"," + contents + b"}]")

    def _arguments(self, event: ArgumentsDelta) -> None:
        self._characters += len(event.text)
        self._send_arguments(self._calls[event.index], event.text)

    def _send_arguments(self, call: _OpenCall, text: str) -> None:
        call.sent = True
        self._emit(call.prefix + JSON(text) + b"}}]")

    def _block_end(self, event: BlockEnded) -> None:
        call = self._calls.get(event.index)
        if call is not None and not call.sent and not call.custom:
            self._send_arguments(call, "{}")  # a client that parses "" fails

    def _report_usage(self, event: UsageReported) -> None:
        self._usage = event.usage if self._usage is None else self._usage.updated(event.usage)

    def _finish(self, event: Finished) -> None:
        self._finished = event

    def _complete(self, _: Completed) -> None:
        self._start(Started())
        self._close_thinking()
        context = self._context
        usage = usage_json(self._usage, context.input_estimate, self._characters)
        reason = chat_reason(self._finished.reason, with_calls=self._call_count > 0)
        head = self._head[len(b"data: ") :]
        finish = head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":' + JSON(reason) + b"}]"
        if context.include_usage:
            self._out.append(b"data: " + finish + b',"usage":null}\n\n')
            last = head + b'],"usage":' + usage + b"}"
        else:
            last = finish + b',"usage":' + usage + b"}"
        self._out.append(b"data: " + with_block(last, context) + b"\n\n" + DONE_FRAME)


class _OpenCall:
    """A call that went out. `prefix`: what stands before its fragments."""

    __slots__ = ("custom", "number", "prefix", "sent")

    def __init__(self, number: int, *, custom: bool) -> None:
        self.number = number
        self.custom = custom
        self.sent = False
        contents = b',"custom":{"input":' if custom else b',"function":{"arguments":'
        self.prefix = b'"tool_calls":[{"index":' + str(number).encode("ascii") + contents


def _ignore(_: ChatEncoder, event: Event) -> None:
    """Has no place in Chat."""


_HANDLERS: dict[type, Callable[[ChatEncoder, Any], None]] = {
    TextDelta: ChatEncoder._text,
    ThinkingDelta: ChatEncoder._thinking,
    ArgumentsDelta: ChatEncoder._arguments,
    Started: ChatEncoder._start,
    BlockStarted: ChatEncoder._block,
    BlockEnded: ChatEncoder._block_end,
    UsageReported: ChatEncoder._report_usage,
    Finished: ChatEncoder._finish,
    Completed: ChatEncoder._complete,
    SignatureDelta: _ignore,
    CitationDelta: _ignore,
    Noted: _ignore,
    Failed: _ignore,  # worded by the gateway through `fail`
}
"""By the type of the event. An encoder's own table of its methods would refer to it: only a collection would free the two."""


def chat_id(response_id: str, context: ReplyContext) -> str:
    """The upstream's own id where it is one of Chat, else one of ours."""
    return response_id if response_id.startswith("chatcmpl") else f"chatcmpl-{context.reply_id}"


def envelope(response_id: str, context: ReplyContext) -> bytes:
    """The beginning of every chunk, up to the first choice."""
    head = b'{"id":' + JSON(response_id) + b',"object":"chat.completion.chunk","created":'
    return head + str(context.created).encode("ascii") + b',"model":' + JSON(context.model) + b',"choices":['


def with_block(data: bytes, context: ReplyContext) -> bytes:
    """The object with the routing block, if there is one."""
    block = context.block()
    return data if block is None else append_member(data, context.block_name, block)


def fail_frame(error: StromError) -> bytes:
    """The in-band error. No terminator follows it."""
    return b"data: " + error_json(error) + b"\n\n"
