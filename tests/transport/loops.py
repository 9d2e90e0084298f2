"""Runs a test under asyncio's own loop and under uvloop, since the two differ in what they promise protocols."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(loop_name: str, **arguments: Any) -> None:
        async def main() -> None:
            assert type(asyncio.get_running_loop()).__module__.startswith(loop_name)
            await test(**arguments)

        with asyncio.Runner(loop_factory=_FACTORIES[loop_name]) as runner:
            runner.run(main())

    signature = inspect.signature(test)
    extra = inspect.Parameter("loop_name", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    parametrized: Callable[..., None] = pytest.mark.parametrize("loop_name", list(_FACTORIES))(run)
    return parametrized
