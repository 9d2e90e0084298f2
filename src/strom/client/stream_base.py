"""What the sync and the async stream share: the run, the rules of use, the result."""

from __future__ import annotations

from collections.abc import Callable

from strom.client.direct import DirectMailbox
from strom.client.events import StreamChunk, StreamContent, StreamDone, StreamError, StreamEvent, StreamThinking
from strom.client.evidence import StreamMetrics
from strom.client.failures import StreamMisuse, failure_of
from strom.client.mailbox import Clock, Mailbox
from strom.client.reply import Reply
from strom.client.run import Run
from strom.client.tool_running import ToolBox
from strom.core import messages as core
from strom.transport.types import UpstreamClient

ONCE = "A stream is read once; ask for a new one."
SHUT = "This stream was closed; ask for a new one."
BUSY = "Two readers use this stream at the same time; it has one."
CLOSED = "The stream was closed before its end: there is no reply."


class StreamBase:
    """`transport` None: the shared pool of the loop. Events come from `run.events`."""

    def __init__(self, run: Run, tools: ToolBox, clock: Clock, transport: UpstreamClient | None) -> None:
        self._run = run
        self._tools = tools
        self._clock = clock
        self._transport = transport
        self._events = run.events
        self._mailbox: Mailbox | None = None
        self._iterated = False
        self._cancel_asked = False
        self._closed = False

    @property
    def last_stream_metrics(self) -> StreamMetrics:
        """Timing as far as it is known; complete once the stream has ended, also when it was closed."""
        return self._run.metrics

    @property
    def ended(self) -> bool:
        """A terminal event came, or the stream was closed."""
        return self._run.over

    @property
    def failure(self) -> StreamError | None:
        """The terminal event, if it was no success."""
        return self._run.failure

    @property
    def new_messages(self) -> tuple[core.Message, ...]:
        """What a completed run adds to the conversation; empty before."""
        return self._run.reply.messages if self._run.reply is not None else ()

    def on_delivered(self, callback: Callable[[Reply], None]) -> None:
        """`callback` is given the reply once the reader has been given StreamCompleted, and never otherwise."""
        self._run.on_delivered = callback

    def _abandon(self, mailbox: Mailbox | DirectMailbox | None) -> None:
        """From `__del__`, so in the middle of anything: what needs locks is left to the loop."""
        if mailbox is None:
            return
        mailbox.drop()
        tracer = self._run.abandon(self._clock())
        if tracer is not None and not mailbox.loop.is_closed():
            mailbox.loop.call_soon_threadsafe(tracer.flush)

    def _begin_reading(self) -> None:
        if self._closed:
            raise StreamMisuse(SHUT)
        if self._iterated:
            raise StreamMisuse(ONCE)
        self._iterated = True

    def _result(self) -> Reply:
        """After the end. Raises StreamFailed, StreamMisuse."""
        if self._run.reply is not None:
            return self._run.reply
        if self._run.failure is not None:
            raise failure_of(self._run.failure)
        raise StreamMisuse(CLOSED)

    def _chunk(self, event: StreamEvent) -> StreamChunk | None:
        match event:
            case StreamContent(text):
                return StreamChunk(text)
            case StreamThinking(text):
                return StreamChunk(thinking=text)
            case _:
                return None

    def _done(self) -> StreamDone:
        metadata = self._result().metadata
        return StreamDone(metadata.finish_reason, metadata)
