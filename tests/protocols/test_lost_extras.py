"""What a translated request names as dropped of the members that only its own protocol knows."""

from __future__ import annotations

import json

import pytest

from strom.protocols.codec import Target
from strom.protocols.table import CODECS

OWN = {"store": True, "background": False, "previous_response_id": "resp_1", "prompt_cache_key": "k"}


@pytest.mark.parametrize("behind", ["openai-chat", "anthropic", "ollama"])
def test_what_the_gateway_serves_itself_is_not_lost(behind: str) -> None:
    """It stores, runs in the background and continues responses with any upstream."""
    body = json.dumps({"model": "m", "input": "hi", **OWN}).encode()
    request = CODECS["openai-responses"].decode_request(body)
    call = CODECS[behind].encode_request(request, Target("up", stream=True))
    assert [name for name in call.dropped if name in OWN] == ["prompt_cache_key"]
    assert not OWN.keys() & json.loads(call.body).keys()


def test_a_chat_client_s_wish_to_store_is_lost() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "store": True}).encode()
    request = CODECS["openai-chat"].decode_request(body)
    assert "store" in CODECS["anthropic"].encode_request(request, Target("up", stream=True)).dropped
