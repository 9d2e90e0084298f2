"""The official SDK over a transport in memory, as a judge of what we write."""

from __future__ import annotations

from collections.abc import Mapping

import anthropic
import httpx2

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}


def sdk(body: bytes, status: int = 200, headers: Mapping[str, str] = JSON) -> anthropic.Anthropic:
    """A client to which every request is answered so."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=dict(headers), content=body)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="k", base_url="http://test", max_retries=0, http_client=client)


def read_stream(body: bytes) -> anthropic.types.Message:
    client = sdk(body, headers=SSE)
    with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as stream:
        return stream.get_final_message()
