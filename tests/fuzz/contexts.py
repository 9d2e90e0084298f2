"""What encoders and relays are told of an imagined call."""

from __future__ import annotations

import functools
import json
from typing import Any

from strom.core.messages import Request
from strom.protocols.codec import ReplyContext
from strom.protocols.table import CODECS

_MESSAGES = [{"role": "user", "content": "hi"}]
_BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": _MESSAGES, "stream_options": {"include_usage": True}},
    "anthropic": {"messages": _MESSAGES, "max_tokens": 64},
    "openai-responses": {"input": "hi"},
    "ollama": {"messages": _MESSAGES},
}


@functools.cache
def _request(protocol: str) -> Request:
    return CODECS[protocol].decode_request(json.dumps({"model": "m", **_BODIES[protocol], "stream": True}).encode())


def make_context(protocol: str) -> ReplyContext:
    request = _request(protocol)
    return ReplyContext(
        reply_id="r1",
        request_id="t1",
        model="m",
        created=1_700_000_000,
        created_at="2023-11-14T22:13:20Z",
        include_usage=request.include_usage,
        block=lambda: b'{"trace_id":"t1"}',
        request=request,
    )
