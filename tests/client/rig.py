"""Drives the library's core without I/O: answers of an upstream in, public events out, on a clock that only this moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import msgspec

from strom.client.async_model import AsyncModel
from strom.client.events import StreamCompleted, StreamError, StreamEvent
from strom.client.messages import Messages
from strom.client.options import CallOptions, ModelOptions
from strom.client.retry import Admission
from strom.client.run import Run
from strom.client.signals import (
    Ask,
    BodyEnded,
    Broke,
    LetGo,
    Listen,
    Over,
    Pause,
    Received,
    Responded,
    RunTools,
    Send,
    Sent,
)
from strom.client.tool_running import ToolBox
from strom.transport.types import Headers, TransportFailure

SSE: Headers = [(b"content-type", b"text/event-stream")]
NDJSON: Headers = [(b"content-type", b"application/x-ndjson")]
JSON: Headers = [(b"content-type", b"application/json")]
DONE = b"data: [DONE]\n\n"


class Answer(msgspec.Struct, frozen=True):
    """What the upstream does with one request. `gap_s`: time before each read. `cut`: how it breaks, None: it ends well.

    `silent`: it never goes on after the reads.
    """

    reads: tuple[bytes, ...] = ()
    status: int = 200
    headers: Headers = msgspec.field(default_factory=lambda: SSE)
    gap_s: float = 0.1
    cut: TransportFailure | None = None
    silent: bool = False


def refused(status: int, message: str = "no", *, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
    body = json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode()
    return Answer((body,), status, [*JSON, *headers])


def unreachable(*, sent: bool = False) -> Answer:
    return Answer(status=0, cut=TransportFailure("connect", "refused", sent=sent))


class Rig:
    """One run. `now` is the clock; `sent` what went out; `pauses` the delays that were waited for."""

    def __init__(
        self, answers: Sequence[Answer], *, model: ModelOptions | None = None, name: str = "m", start: float = 1000.0
    ) -> None:
        self.now = start
        self.answers = list(answers)
        self.sent: list[Send] = []
        self.let_go: list[bool] = []
        self.pauses: list[float] = []
        self.rounds = 0
        options: ModelOptions = {"environ": {}, "clock": lambda: self.now, **(model or {})}
        if "base_url" not in options and "/" not in name:
            options["base_url"] = "http://upstream:1"
        self.model = AsyncModel(name, **options)
        self.run: Run
        self.tools: ToolBox

    def play(self, messages: Messages = "Hello", **options: Unpack[CallOptions]) -> list[StreamEvent]:
        """All events of a stream, to its end."""
        self.open(messages, **options)
        return self.finish()

    def open(self, messages: Messages = "Hello", *, whole: bool = False, **options: Unpack[CallOptions]) -> None:
        self.run, self.tools = self.model._prepare(messages, options, whole=whole)

    def finish(self) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        while self.step():
            events += self._take()
        events += self._take()
        return events

    def step(self) -> bool:
        """One action; False after the last."""
        match self.run.action():
            case Send() as wanted:
                self.sent.append(wanted)
                self._answer(self.answers.pop(0))
            case Listen(deadline):
                self.now = max(self.now, deadline)
                self.run.tick(self.now)
            case Pause(seconds):
                self.pauses.append(seconds)
                self.now += seconds
            case Ask(request):
                retry = self.run.job.retry
                assert retry is not None
                assert retry.admission is not None
                answer = retry.admission(request)
                self.run.admitted(_known(answer), self.now)
            case RunTools() as wanted:
                self.rounds += 1
                self.run.ran(self.tools.run(wanted, asyncio.run))
            case LetGo(whole):
                self.let_go.append(whole)
            case Over():
                return False
        return True

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(send.request.body) for send in self.sent]

    def _answer(self, answer: Answer) -> None:
        run = self.run
        run.take(Sent(self.now))
        if answer.status:
            run.take(Responded(self.now, answer.status, answer.headers))
        for data in answer.reads:
            self.now += answer.gap_s
            run.take(Received(self.now, data))
        if answer.cut is not None:
            self.now += answer.gap_s
            run.take(Broke(self.now, answer.cut))
        elif not answer.silent:
            run.take(BodyEnded(self.now))

    def _take(self) -> list[StreamEvent]:
        events = list(self.run.events)
        self.run.events.clear()
        return events


def _known(answer: object) -> Admission:
    assert answer is None or isinstance(answer, bool | str)
    return answer  # type: ignore[return-value]  # the tests' callbacks are not coroutines


def play(*reads: bytes, **options: Unpack[CallOptions]) -> list[StreamEvent]:
    """The events of one Chat stream that came in these reads."""
    return Rig([Answer(reads)]).play(**options)


def failed(events: Sequence[StreamEvent]) -> StreamError:
    """The one terminal event, which has to be an error."""
    last = _only_terminal(events)
    assert isinstance(last, StreamError), last
    return last


def completed(events: Sequence[StreamEvent]) -> StreamCompleted:
    last = _only_terminal(events)
    assert isinstance(last, StreamCompleted), last
    return last


def _only_terminal(events: Sequence[StreamEvent]) -> StreamEvent:
    terminal = [event for event in events if isinstance(event, StreamCompleted | StreamError)]
    assert len(terminal) == 1
    assert events[-1] is terminal[0]
    return events[-1]


# --- frames ------------------------------------------------------------------------------------------


def sse(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if delta is not None:
        choice["delta"] = delta
    frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "used-1", "choices": [choice]}
    return sse({**frame, **more})


def content(text: str, finish: str | None = None, **more: Any) -> bytes:
    return chunk({"content": text}, finish, **more)


def finish(reason: str, **more: Any) -> bytes:
    return chunk({}, reason, **more)


def usage(prompt: int = 5, completion: int = 7) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return sse(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "used-1", "choices": [], "usage": counts}
    )


def tool_delta(
    index: int = 0, *, call_id: str | None = None, name: str | None = None, arguments: str | None = None
) -> bytes:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call: dict[str, Any] = {"index": index, "function": function}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
    return chunk({"tool_calls": [call]})


def call(call_id: str, name: str, arguments: str, index: int = 0) -> bytes:
    first = tool_delta(index, call_id=call_id, name=name, arguments="")
    return first + tool_delta(index, arguments=arguments)


def calls_answer(*calls: bytes) -> Answer:
    return Answer((chunk({"role": "assistant"}), *calls, finish("tool_calls"), usage(), DONE))


def text_answer(text: str = "Hello there", **fields: Any) -> Answer:
    return Answer((chunk({"role": "assistant"}), content(text), finish("stop"), usage(), DONE), **fields)


def line(**fields: Any) -> bytes:
    """A line of Ollama."""
    return json.dumps({"model": "used-1", "created_at": "2026-01-01T00:00:00Z", **fields}).encode() + b"\n"


def said(text: str, **fields: Any) -> bytes:
    return line(message={"role": "assistant", "content": text}, **({"done": False} | fields))


def play_ollama(*reads: bytes, **options: Unpack[CallOptions]) -> list[StreamEvent]:
    return Rig([Answer(reads, headers=NDJSON)], name="ollama/m").play(**options)
