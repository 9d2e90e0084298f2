"""The async shell: carries out what the run asks for, on the running loop. No task and no timer per event."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Self

from strom.client.events import StreamChunk, StreamContent, StreamDone, StreamEvent
from strom.client.failures import StreamMisuse
from strom.client.mailbox import Clock, Mailbox
from strom.client.network import client_for
from strom.client.reply import Reply
from strom.client.run import Run
from strom.client.signals import Ask, LetGo, Listen, Over, Pause, Received, RunTools, Send, Signal, ToolOutcome
from strom.client.stream_base import BUSY, StreamBase
from strom.client.tool_running import ToolBox
from strom.transport.types import UpstreamClient

LONGEST_WAIT_S = 3600.0


class Inbox:
    """Signals in the order they came, and at most one reader that waits. One timer, moved only when it would be too late."""

    __slots__ = ("_due", "_timer", "_timer_at", "_waiter", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[Mailbox, Signal]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._due = 0.0

    def put(self, item: tuple[Mailbox, Signal]) -> None:
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until a signal is there, or `wake`, or the time is over."""
        if self.items:
            return
        loop = asyncio.get_running_loop()
        self._due = loop.time() + min(max(0.0, seconds), LONGEST_WAIT_S)
        if self._timer is None or self._due < self._timer_at:
            self._arm(loop)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop()
        self._timer_at = self._due
        self._timer = loop.call_at(self._timer_at, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() >= self._due:
            self.wake()
        else:
            self._arm(loop)


class _Reader:
    """The one iterator of a stream: it may be handed on and looped over in parts; a second one is refused."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[object, object, StreamEvent]:
        return self._stream.__anext__()


class AsyncStream(StreamBase):
    """A stream of events: iterate it once, to its one terminal event. Cancelling the reading task closes the exchange.

    async with model.stream("Hello") as stream:
        async for event in stream:
            ...
        reply = await stream.reply()
    """

    def __init__(self, run: Run, tools: ToolBox, clock: Clock, transport: UpstreamClient | None) -> None:
        super().__init__(run, tools, clock, transport)
        self._busy = False
        self._inbox = Inbox()
        self._working: asyncio.Future[list[ToolOutcome]] | None = None

    # -- reading

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        self._begin_reading()
        return _Reader(self)

    async def __anext__(self) -> StreamEvent:
        events = self._events
        event = events.popleft() if events else await self._wait()
        if self._run.over and not events:
            self._run.delivered()
        return event

    async def _wait(self) -> StreamEvent:
        """The next event, when none is there yet."""
        if self._busy:
            raise StreamMisuse(BUSY)
        self._busy = True
        try:
            while not self._events:
                if not await self._step() and not self._events:
                    raise StopAsyncIteration
            return self._events.popleft()
        except StopAsyncIteration:
            raise
        except BaseException:
            self._close()
            raise
        finally:
            self._busy = False

    def text(self) -> AsyncIterator[str]:
        """The answer's text alone. Raises StreamFailed after the last piece unless the answer is complete."""
        self._begin_reading()
        return self._text()

    def chunks(self) -> AsyncIterator[StreamChunk | StreamDone]:
        """Pieces of text and thinking, then one StreamDone; a failure is raised, and there is no StreamDone."""
        self._begin_reading()
        return self._chunks()

    async def reply(self) -> Reply:
        """The whole reply, after reading what is left. Raises StreamFailed, which carries the evidence."""
        async for _ in _Reader(self):
            pass
        return self._result()

    # -- leaving

    async def aclose(self) -> None:
        """Closes the exchange. No terminal event follows; timing and evidence stay."""
        self._closed = True
        self._close()

    def cancel(self) -> None:
        """Closes the exchange; the reader is given StreamError(cancelled). From any task; no effect after the end."""
        self._run.cancel(self._clock())
        self._settle()
        self._inbox.wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        mailbox = getattr(self, "_mailbox", None)
        if mailbox is not None:
            self._inbox.stop()
        self._abandon(mailbox)

    # -- inside

    async def _text(self) -> AsyncIterator[str]:
        try:
            async for event in _Reader(self):
                if type(event) is StreamContent:
                    yield event.text
            self._result()
        finally:
            if not self._run.over:
                self._close()

    async def _chunks(self) -> AsyncIterator[StreamChunk | StreamDone]:
        try:
            async for event in _Reader(self):
                chunk = self._chunk(event)
                if chunk is not None:
                    yield chunk
            yield self._done()
        finally:
            if not self._run.over:
                self._close()

    def _close(self) -> None:
        self._run.close(self._clock())
        self._settle()
        self._inbox.wake()

    def _settle(self) -> None:
        """Once the run is over, its exchange is let go, whether or not somebody reads on."""
        while self._run.over and not isinstance(action := self._run.action(), Over):
            if isinstance(action, LetGo):
                self._let_go(whole=action.whole)
        if self._run.over:
            self._inbox.stop()
            if self._working is not None:
                self._working.cancel()

    async def _step(self) -> bool:
        """Carries out one action; False when there is none left."""
        match self._run.action():
            case Listen(deadline):
                await self._listen(deadline)
            case Send() as wanted:
                self._send(wanted)
            case LetGo(whole):
                self._let_go(whole=whole)
            case RunTools() as wanted:
                await self._run_tools(wanted)
            case Pause(seconds):
                await self._pause(seconds)
            case Ask(request):
                await self._ask(Ask(request))
            case Over():
                self._inbox.stop()
                return False
        return True

    async def _run_tools(self, wanted: RunTools) -> None:
        """`cancel` and `aclose` of another task end the tools as well."""
        self._working = work = asyncio.ensure_future(self._tools.run_async(wanted))
        try:
            self._run.ran(await work)
        except asyncio.CancelledError:
            reader = asyncio.current_task()
            if not self._run.over or (reader is not None and reader.cancelling()):
                raise
        finally:
            self._working = None
            work.cancel()

    def _send(self, wanted: Send) -> None:
        loop = asyncio.get_running_loop()
        mailbox = self._mailbox = Mailbox(loop, self._clock, self._inbox.put)
        mailbox.send(self._transport or client_for(loop), wanted)

    def _let_go(self, *, whole: bool) -> None:
        mailbox, self._mailbox = self._mailbox, None
        if mailbox is not None:
            mailbox.let_go(whole=whole)

    async def _listen(self, deadline: float) -> None:
        inbox = self._inbox
        if not inbox.items:
            await inbox.wait(deadline - self._clock())
        if not inbox.items:
            self._run.tick(self._clock())
        while inbox.items:
            mailbox, signal = inbox.items.popleft()
            if mailbox is self._mailbox:
                resumes = type(signal) is Received and mailbox.taken(len(signal.data))
                self._run.take(signal)
                if resumes:
                    self._run.resumed(self._clock())
        self._settle()

    async def _pause(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not self._run.over and (left := end - asyncio.get_running_loop().time()) > 0:
            self._inbox.items.clear()  # of an exchange that is over
            await self._inbox.wait(left)

    async def _ask(self, wanted: Ask) -> None:
        retry = self._run.job.retry
        assert retry is not None
        assert retry.admission is not None
        answer = retry.admission(wanted.request)
        if inspect.isawaitable(answer):
            answer = await answer
        self._run.admitted(answer, self._clock())
