"""The sync shell: carries out what the run asks for, in the thread that reads the stream: decoding, tools, callbacks.

Over plain HTTP that thread reads the socket, too (see `direct`); over TLS the background loop does, and only notes the time.
What the loop's thread or one that leaves has to say comes through the inbox.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from strom.client.direct import DirectMailbox, Opened
from strom.client.events import StreamChunk, StreamContent, StreamDone, StreamEvent
from strom.client.failures import StreamMisuse
from strom.client.mailbox import Clock, Mailbox
from strom.client.network import background_loop, client_for, plain_lines, wait_for
from strom.client.reply import Reply
from strom.client.run import Run
from strom.client.signals import Ask, LetGo, Listen, Over, Pause, Received, RunTools, Send, Sent, Signal
from strom.client.stream_base import BUSY, StreamBase
from strom.client.tool_running import ToolBox
from strom.transport.types import UpstreamClient

LONGEST_WAIT_S = 3600.0
_Item = tuple[Mailbox | DirectMailbox | None, Signal | Opened | None]


class _Reader:
    """The one iterator of a stream: it may be handed on and looped over in parts; a second one is refused."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        return self._stream.__next__()


class Stream(StreamBase):
    """A stream of events: iterate it once, to its one terminal event.

    Nothing is sent before the first event is asked for. Leave it early only by `close`, `cancel`, or the end of a `with`.

        with model.stream("Hello") as stream:
            for event in stream:
                ...
            reply = stream.reply()
    """

    _direct: DirectMailbox | None = None
    _pace_s = 0.0

    def __init__(self, run: Run, tools: ToolBox, clock: Clock, transport: UpstreamClient | None) -> None:
        super().__init__(run, tools, clock, transport)
        self._busy = threading.Lock()
        self._gate = threading.RLock()  # held while somebody leaves: that is no second reader
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()

    # -- reading

    def __iter__(self) -> Iterator[StreamEvent]:
        self._begin_reading()
        return _Reader(self)

    def __next__(self) -> StreamEvent:
        try:
            event = self._events.popleft()
        except IndexError:
            event = self._wait()
        if self._run.over and not self._events:
            self._run.delivered()
        return event

    def text(self) -> Iterator[str]:
        """The answer's text alone. Raises StreamFailed after the last piece unless the answer is complete."""
        self._begin_reading()
        return self._text()

    def chunks(self) -> Iterator[StreamChunk | StreamDone]:
        """Pieces of text and thinking, then one StreamDone; a failure is raised, and there is no StreamDone."""
        self._begin_reading()
        return self._chunks()

    def reply(self) -> Reply:
        """The whole reply, after reading what is left. Raises StreamFailed, which carries the evidence."""
        for _ in _Reader(self):
            pass
        return self._result()

    # -- leaving

    def close(self) -> None:
        """Closes the exchange. No terminal event follows; timing and evidence stay."""
        self._closed = True
        self._leave()

    def cancel(self) -> None:
        """Closes the exchange; the reader is given StreamError(cancelled). From any thread; no effect after the end.

        A tool that runs in the reader's thread ends first: threads cannot be interrupted."""
        self._cancel_asked = True
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._abandon(self._direct or getattr(self, "_mailbox", None))

    # -- inside

    def _text(self) -> Iterator[str]:
        try:
            for event in _Reader(self):
                if type(event) is StreamContent:
                    yield event.text
            self._result()
        finally:
            if not self._run.over:
                self.close()

    def _chunks(self) -> Iterator[StreamChunk | StreamDone]:
        try:
            for event in _Reader(self):
                chunk = self._chunk(event)
                if chunk is not None:
                    yield chunk
            yield self._done()
        finally:
            if not self._run.over:
                self.close()

    def _wait(self) -> StreamEvent:
        """The next event, when none is there yet."""
        if not self._busy.acquire(blocking=False):
            with self._gate:
                pass
            if not self._busy.acquire(blocking=False):
                raise StreamMisuse(BUSY)
        events = self._events
        try:
            if self._pace_s:
                self._read_on(self._pace_s)
            while not events:
                self._obey()
                if not self._step() and not events:
                    raise StopIteration
            return events.popleft()
        except StopIteration:
            raise
        except BaseException:
            self._pace_s = 0.0
            self._run.close(self._clock())
            self._settle()
            raise
        finally:
            self._busy.release()

    def _read_on(self, pace_s: float) -> None:
        """In the middle of an answer, after a read that gave events: the way through `_step`, cut short."""
        direct, inbox = self._direct, self._inbox
        self._pace_s = 0.0
        if direct is None or direct.line is None or not inbox.empty():
            return
        direct.line.read_on(pace_s)
        if inbox.empty():
            signals, run = direct.signals, self._run
            while signals:
                run.take(signals.popleft())
            if self._events:  # and the turn goes on: after its end nothing more comes on this line
                self._pace_s = min(run.pace_s, LONGEST_WAIT_S)

    def _leave(self) -> None:
        with self._gate:
            if not self._busy.acquire(blocking=False):
                self._inbox.put((None, None))  # the reader wakes, and obeys
                if (direct := self._direct) is not None:
                    direct.wake()
                return
            try:
                self._obey()
            finally:
                self._busy.release()

    def _obey(self) -> None:
        """What was asked for from outside."""
        run = self._run
        if self._closed:
            run.close(self._clock())
        elif self._cancel_asked:
            run.cancel(self._clock())
        self._settle()

    def _settle(self) -> None:
        """Once the run is over, its exchange is let go, whether or not somebody reads on."""
        while self._run.over and not isinstance(action := self._run.action(), Over):
            if isinstance(action, LetGo):
                self._let_go(whole=action.whole)

    def _step(self) -> bool:
        """Carries out one action; False when there is none left."""
        match self._run.action():
            case Listen(deadline):
                self._listen(deadline)
            case Send() as wanted:
                self._send(wanted)
            case LetGo(whole):
                self._let_go(whole=whole)
            case RunTools() as wanted:
                self._run.ran(self._tools.run(wanted, wait_for))
            case Pause(seconds):
                self._pause(seconds)
            case Ask(request):
                self._ask(Ask(request))
            case Over():
                return False
        return True

    def _send(self, wanted: Send) -> None:
        loop = background_loop()
        if self._transport is None and wanted.origin.scheme == "http":
            self._direct = direct = DirectMailbox(loop, plain_lines(), self._clock, self._inbox.put, wanted)
            self._run.take(Sent(self._clock()))
            direct.send()
            return
        mailbox = self._mailbox = Mailbox(loop, self._clock, self._inbox.put)
        client = self._transport or client_for(loop)
        loop.call_soon_threadsafe(mailbox.send, client, wanted)

    def _let_go(self, *, whole: bool) -> None:
        mailbox, self._mailbox = self._mailbox, None
        if mailbox is not None:
            mailbox.let_go_threadsafe(whole=whole)
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.let_go(whole=whole)

    def _listen(self, deadline: float) -> None:
        seconds = min(max(0.0, deadline - self._clock()), LONGEST_WAIT_S)
        direct = self._direct
        if direct is not None and (direct.signals or direct.line is not None):
            self._read(direct, seconds)
            self._pace_s = min(self._run.pace_s, LONGEST_WAIT_S) if self._events else 0.0
        else:
            self._await_inbox(seconds)
        if self._run.over:
            self._settle()

    def _read(self, direct: DirectMailbox, seconds: float) -> None:
        """Reads the socket, unless somebody has left or leaves meanwhile."""
        signals, run = direct.signals, self._run
        if not signals and self._inbox.empty():
            direct.wait(seconds)
        if not self._inbox.empty():
            self._handle(self._inbox.get())
        elif signals:
            while signals:
                run.take(signals.popleft())
        elif direct.line is not None:
            run.tick(self._clock())

    def _await_inbox(self, seconds: float) -> None:
        try:
            self._handle(self._inbox.get(timeout=seconds))
            while not self._inbox.empty():
                self._handle(self._inbox.get())
        except queue.Empty:
            self._run.tick(self._clock())

    def _handle(self, item: _Item) -> None:
        mailbox, signal = item
        if signal is None:
            self._obey()
        elif isinstance(signal, Opened):
            assert isinstance(mailbox, DirectMailbox)
            mailbox.opened()
        elif mailbox is self._direct:
            self._run.take(signal)
        elif mailbox is self._mailbox and mailbox is not None:
            resumes = type(signal) is Received and mailbox.taken(len(signal.data))
            self._run.take(signal)
            if resumes:
                self._run.resumed(self._clock())

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._run.over and (left := end - time.monotonic()) > 0:
            try:
                self._handle(self._inbox.get(timeout=left))
            except queue.Empty:
                return

    def _ask(self, wanted: Ask) -> None:
        retry = self._run.job.retry
        assert retry is not None
        assert retry.admission is not None
        answer = retry.admission(wanted.request)
        if asyncio.iscoroutine(answer):
            answer = wait_for(answer)
        self._run.admitted(answer, self._clock())  # type: ignore[arg-type]  # a coroutine has been awaited
