"""From a model's stream to the events of a run: each piece is handed on as it comes, the whole is the result.

However the step ends, the upstream is closed with it: cancelling a run cancels its steps, and that closes their streams.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from workflows import Context
from workflows.events import Event

from strom.client.async_stream import AsyncStream
from strom.client.reply import Reply
from strom.workflow.events import Answered, published

Put = Callable[[Event], Awaitable[None] | None]
Sink = Context[Any] | Put
"""Where events go: the context of a step (the run's own event stream), or a function, sync or async."""


async def forward(stream: AsyncStream, sink: Sink) -> Reply:
    """Hands every piece of the stream to `sink` and returns the whole reply. Raises StreamFailed, which has the evidence."""
    put = writer(sink)
    async with stream:
        async for event in stream:
            made = published(event)
            if made is not None:
                await put(made)
        return await stream.reply()


async def answer(stream: AsyncStream, sink: Sink) -> Answered:
    """`forward`, and the stop event that a step returns to end its run."""
    return Answered.of(await forward(stream, sink))


def writer(sink: Sink) -> Callable[[Event], Awaitable[None]]:
    put: Put = sink.write_event_to_stream if isinstance(sink, Context) else sink

    async def write(event: Event) -> None:
        outcome = put(event)
        if inspect.isawaitable(outcome):
            await outcome

    return write
