"""The official SDK over a transport in memory, as a judge of what we write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import openai

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}


def sdk(body: bytes, status: int = 200, headers: Mapping[str, str] = JSON) -> openai.OpenAI:
    """A client to which every request is answered so."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=dict(headers), content=body)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", max_retries=0, http_client=client)


def read_stream(body: bytes) -> tuple[Any, list[str]]:
    """The final response as the SDK's stream helper has it, and the types of all events."""
    with sdk(body, headers=SSE).responses.stream(model="m", input="x") as stream:
        kinds = [str(event.type) for event in stream]
        return stream.get_final_response(), kinds
