"""The official Anthropic SDK over loopback: through the gateway to a backend that answers as Anthropic does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

from strom.gateway.gateway import Gateway, State
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.policies.auth import KeyRing
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from strom.transport.client import NativeClient
from strom.transport.listener import Listener
from strom.transport.timers import LoopClock
from strom.transport.types import ServerLimits
from strom.upstreams.settings import ProviderSettings
from strom.upstreams.upstream import Upstream
from tests.gateway.rig import Records
from tests.gateway.test_anthropic_backend import LIMITS, STREAM

HEAD = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % field for field in LIMITS)
PDF: Any = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}}


def chat_answer(content: str) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice], "usage": usage}
    return json.dumps(whole).encode()


class Stage:
    """What a backend heard, and a client of the gateway before it."""

    def __init__(self, client: anthropic.AsyncAnthropic, records: Records) -> None:
        self.client = client
        self.records = records
        self.heads: list[bytes] = []
        self.bodies: list[Any] = []


@asynccontextmanager
async def stage(protocol: Any, kind: bytes, body: bytes, quirks: Quirks | None = None) -> AsyncIterator[Stage]:
    """A gateway on a socket before one backend on a socket that always answers so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        found.heads.append(head)
        found.bodies.append(json.loads(await reader.readexactly(int(size.partition(b":")[2]))))
        writer.write(HEAD + b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (kind, len(body)))
        writer.write(body)
        await writer.drain()
        writer.close()

    backend = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{backend.sockets[0].getsockname()[1]}"
    upstream = Upstream(ProviderSettings("p1", "generic", protocol, url, quirks=quirks or Quirks()))
    client, records = NativeClient(environ={}), Records()
    services = Services(client, records, CallSettings(), LoopClock(asyncio.get_running_loop()))
    state = State(Router([upstream], [], []), KeyRing((), required=False))
    gateway = Gateway(services, CODECS, state)
    listener = Listener(lambda exchange: gateway.handle_call(exchange, CODECS["anthropic"]), ServerLimits())
    await listener.start("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.port}"
    async with anthropic.AsyncAnthropic(api_key="k", base_url=address, max_retries=0) as sdk:
        found = Stage(sdk, records)
        yield found
    await listener.close()
    services.lingering.close()
    client.close()
    backend.close()


async def test_it_accumulates_a_paused_turn_with_server_tools_and_citations() -> None:
    async with stage("anthropic", b"text/event-stream", STREAM) as play:
        asked = play.client.messages.stream(
            model="claude",
            max_tokens=2048,
            messages=[{"role": "user", "content": [PDF, {"type": "text", "text": "see"}]}],
            extra_headers={"anthropic-beta": "files-api-2025-04-14"},
        )
        async with asked as stream:
            message = await stream.get_final_message()
            headers = stream.response.headers
    assert [part.type for part in message.content] == ["thinking", "server_tool_use", "web_search_tool_result", "text"]
    thinking, text = message.content[0], message.content[3]
    assert thinking.type == "thinking"
    assert thinking.signature == "SIG=="
    assert text.type == "text"
    assert text.citations is not None
    assert text.citations[0].type == "char_location"
    assert message.stop_reason == "pause_turn"
    assert headers["x-strom-upstream-request-id"] == "req_upstream"
    assert headers["anthropic-ratelimit-requests-remaining"] == "7"
    assert headers["request-id"] == play.records.all[0].trace_id
    assert b"anthropic-beta: files-api-2025-04-14" in play.heads[0].lower()
    assert play.bodies[0]["messages"][0]["content"][0] == PDF


@pytest.mark.parametrize("answer", ['```json\n{"n": 3}\n```', '{"n": "three"}'])
async def test_its_structured_output_from_a_backend_that_enforces_none(answer: str) -> None:
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    blind = Quirks(response_format=False)
    async with stage("openai-chat", b"application/json", chat_answer(answer), blind) as play:
        asked = play.client.messages.create(
            model="m",
            max_tokens=64,
            messages=[{"role": "user", "content": "how many?"}],
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )
        if "three" in answer:
            with pytest.raises(anthropic.InternalServerError, match=r"\$\.n: expected integer, got string") as raised:
                await asked
            assert raised.value.status_code == 502
            return
        message = await asked
    assert message.content[0].type == "text"
    assert json.loads(message.content[0].text) == {"n": 3}
    assert "response_format" not in play.bodies[0]
    assert play.records.all[0].dropped == ["response_format json_schema (put into the prompt; the answer is checked)"]
