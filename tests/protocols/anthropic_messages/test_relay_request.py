"""The client's own bytes, with as little changed as possible (cases 070 and 131 of the collected reports)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks, Target, UpstreamCall
from strom.wire.splice import split

USER = '{"role":"user","content":"q"}'


def relay(body: str, *, stream: bool = True, quirks: Quirks | None = None) -> UpstreamCall:
    data = body.encode()
    return CODEC.relay_request(data, CODEC.decode_request(data), Target("up", stream, quirks or Quirks()))


def messages(*turns: str) -> str:
    return f'{{"model":"m","max_tokens":5,"messages":[{",".join(turns)}]}}'


def test_only_the_model_nulls_and_stream_change() -> None:
    call = relay('{"x": [1, null],"model":"m", "messages" : [ {"role":"user","content":"q\\u20ac"} ],"top_k":null}')
    assert (
        call.body == b'{"x":[1, null],"model":"up","messages":[ {"role":"user","content":"q\\u20ac"} ],"stream":true}'
    )
    assert (call.path, call.headers) == ("/v1/messages", [(b"anthropic-version", b"2023-06-01")])
    assert call.dropped == ()
    whole = relay(f'{{"model":"m","messages":[{USER}],"stream":true}}', stream=False)
    assert whole.body == b'{"model":"up","messages":[' + USER.encode() + b"]}"


def test_legal_turns_stay_byte_for_byte() -> None:
    turns = (
        USER,
        '{"role":"assistant","content":[{"type":"thinking","thinking":"na\\u00efve  \\"x\\" \\u2028 \\ud83d\\ude42 \\n",'
        '"signature":"c2ln"},{"type":"redacted_thinking","data":"RU5D"},'
        '{"type":"tool_use","id":"toolu_9","name":"f","input":{"z":1.0,"a":[]}}]}',
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_9","content":"ok"}]}',
        '{"role":"system","content":"mid"}',
    )
    assert split(relay(messages(*turns)).body)["messages"].decode() == f"[{','.join(turns)}]"


def test_illegal_ids_are_mapped_and_nothing_else() -> None:
    call_ = '{"role":"assistant","content":[ {"type":"tool_use","id":"%s","name":"Bash","input":{"c":  "ls"}} ]}'
    result = '{"role":"user","content":[{"tool_use_id":"%s","type":"tool_result","content":"a"}]}'
    ids = ("functions.Bash:0", "functions_Bash_0")
    turns = [USER] + [form % each for each in ids for form in (call_, result)]
    body = json.loads(relay(messages(*turns)).body)
    calls = [turn["content"][0]["id"] for turn in body["messages"][1::2]]
    assert calls == [turn["content"][0]["tool_use_id"] for turn in body["messages"][2::2]]
    assert calls[0].startswith("strom_")
    assert calls[1] == "functions_Bash_0"
    sent = split(relay(messages(*turns)).body)["messages"].decode()
    assert sent.startswith(f"[{USER},")
    assert sent.endswith(f"{turns[3]},{turns[4]}]")
    assert '"input":{"c":  "ls"}' in sent
    mapped = [USER, call_ % calls[0], result % calls[0]]
    assert split(relay(messages(*mapped)).body)["messages"].decode() == f"[{','.join(mapped)}]"


@pytest.mark.parametrize("signature", ['"signature":""', '"signature":null', '"x":1'])
def test_unsigned_thinking_is_left_out(signature: str) -> None:
    turn = '{"role":"assistant","content":[{"type":"thinking","thinking":"h",%s}%s]}'
    text = ',{"type":"text","text":"a"}'
    call = relay(messages(USER, turn % (signature, text), USER, turn % (signature, ""), USER))
    assert [turn["content"] for turn in json.loads(call.body)["messages"]] == [
        "q",
        [{"type": "text", "text": "a"}],
        "q",
        "q",
    ]
    assert call.dropped == ("messages[1] thinking (unsigned)", "messages[3] thinking (unsigned)")


def test_system_turns_for_an_upstream_that_takes_none() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 5,
        "system": "s",
        "messages": [
            {"role": "system", "content": "t"},
            {"role": "user", "content": "q"},
            {"role": "system", "content": "u"},
        ],
        "x": 1,
    }
    sent = json.loads(relay(json.dumps(body), quirks=Quirks(mid_system=False)).body)
    assert [block["text"] for block in sent["system"]] == ["s", "t"]
    assert [block["text"] for block in sent["messages"][0]["content"]] == ["q", "u"]
    assert sent["x"] == 1
    assert json.loads(relay(json.dumps(body)).body)["messages"] == body["messages"]
