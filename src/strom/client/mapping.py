"""Many prompts at once, each with its own result; and the bar that shows how far it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from strom.client.evidence import add_usage
from strom.client.reply import Reply
from strom.core.errors import BadRequest, StromError
from strom.core.usage import Usage

PromptT = TypeVar("PromptT")
Progress = Callable[[int, int], None]
_BAR = 30


class MapResult(msgspec.Struct, frozen=True):
    """Exactly one of `reply` and `error` is set."""

    index: int
    reply: Reply | None = None
    error: StromError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


def total_usage(results: Sequence[MapResult]) -> Usage | None:
    """Of all replies together."""
    total: Usage | None = None
    for result in results:
        if result.reply is not None:
            total = add_usage(total, result.reply.usage)
    return total


async def map_all(
    prompts: Sequence[PromptT],
    ask: Callable[[PromptT], Awaitable[Reply]],
    *,
    concurrency: int,
    progress: Progress | bool,
) -> list[MapResult]:
    """Results in the order of the prompts. `concurrency` workers take the next prompt as soon as they are free.

    Raises BadRequest for a number of workers that is none."""
    if concurrency < 0:
        raise BadRequest("concurrency cannot be negative; 0 is all at once.", param="concurrency")
    show = _show_bar if progress is True else progress or None
    results: list[MapResult | None] = [None] * len(prompts)
    waiting = iter(range(len(prompts)))
    done = 0

    async def work() -> None:
        nonlocal done
        for index in waiting:
            try:
                results[index] = MapResult(index, await ask(prompts[index]))
            except StromError as error:
                results[index] = MapResult(index, error=error)
            done += 1
            if show is not None:
                show(done, len(prompts))

    workers = min(concurrency, len(prompts)) or len(prompts)
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    return [result for result in results if result is not None]


def _show_bar(done: int, total: int) -> None:
    filled = _BAR * done // total
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total}{end}")
    sys.stderr.flush()
