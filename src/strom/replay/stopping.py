"""Waiting for the end of a program that serves: Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal


async def until_stopped() -> None:
    """Returns at the first signal; a second one ends the process as usual."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
