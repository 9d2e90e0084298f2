"""A scripted backend that goes on calling tools as long as it is offered some, when asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import strom
from tests.client.loopback import HEAD, Loopback, framed, words
from tests.client.rig import DONE, call, chunk, finish, usage


class Stubborn(Loopback):
    """ "again": calls `f` whenever tools are offered. "two": calls `f` twice at once, then answers."""

    async def _stream(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = [message.get("content") for message in body["messages"] if message["role"] == "user"]
        answers = body["messages"][-1]["role"] == "tool"
        if said[-1] == "again":
            frames = [call("c", "f", '{"a":1}'), finish("tool_calls")] if body.get("tools") else words("at last")
        elif said[-1] == "two" and not answers:
            frames = [call("c1", "f", '{"a":1}') + call("c2", "f", '{"a":2}', 1), finish("tool_calls")]
        else:
            await super()._stream(body, reader, writer)
            return
        writer.write(HEAD)
        for frame in (chunk({"role": "assistant"}), *frames, usage(), DONE):
            writer.write(framed(frame))
        writer.write(b"0\r\n\r\n")


@pytest.fixture
def backend() -> Iterator[Stubborn]:
    running = Stubborn()
    with running:
        yield running


@pytest.fixture
def model(backend: Stubborn) -> strom.AsyncModel:
    return strom.AsyncModel("m", base_url=backend.url)
