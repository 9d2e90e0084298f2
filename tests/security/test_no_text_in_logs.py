"""The text of a conversation is in the answer and nowhere else: no log line of any level, no record, no trace, no metric.

Names are no texts: models, roles, kinds of parts and members of JSON may be named in errors and records, also unknown ones.

Every front protocol before every backend protocol, with every kind of mishap; each text that must not appear is marked. Keys
and whole processes: tests/e2e/test_secrets.py.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from strom.stores.records import record_json
from strom.transport.memory import Script
from tests.security.test_json_depth import BACKENDS, CALLS
from tests.server.rig import ServerRig, provider

MARK = "SENTINEL"
PROMPT = f"this is the {MARK} of what was asked"
ANSWER = f"and this the {MARK} of what was said"
SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]


def body(path: str, *, stream: bool) -> dict[str, Any]:
    turn = {"role": "user", "content": PROMPT}
    common: dict[str, Any] = {"model": "m", "stream": stream}
    if path == "/v1/responses":
        return {**common, "input": PROMPT, "instructions": PROMPT, "store": False}
    if path == "/v1/messages":
        return {**common, "max_tokens": 9, "system": PROMPT, "messages": [turn]}
    return {**common, "messages": [{"role": "system", "content": PROMPT}, turn]}


def chat_stream(end: bytes) -> Script:
    role = json.dumps({"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}}]})
    return Script(200, SSE, ((b"data: " + role.encode() + b"\n\n" + end,),))


def chat_whole(text: str) -> Script:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return Script(200, JSON, ((json.dumps({"id": "1", "choices": [choice]}).encode(),),))


ECHO = json.dumps(
    {"error": {"message": f"cannot do {PROMPT}", "type": PROMPT, "code": PROMPT, "param": PROMPT}}
).encode()
MISHAPS: dict[str, Script] = {
    "end": chat_stream(
        b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    ),
    "cut": chat_stream(b""),
    "garbage": chat_stream(f"data: {{{ANSWER}\n\n".encode()),
    "wrong types": chat_stream(f'data: {{"choices": "{ANSWER}", "id": {{"{ANSWER}": 1}}}}\n\n'.encode()),
    "error inside": chat_stream(b"data: " + ECHO + b"\n\n"),
    "whole": chat_whole(ANSWER),
    "whole garbage": Script(200, JSON, ((f"{ANSWER} no JSON {PROMPT}".encode(),),)),
    "page": Script(200, [(b"content-type", b"text/html")], ((f"<p>{PROMPT}</p>".encode(),),)),
    **{
        f"refused {status}": Script(status, JSON, ((ECHO,),))
        for status in (400, 401, 404, 413, 422, 429, 500, 503, 529)
    },
    "refused in words": Script(500, [(b"content-type", b"text/plain")], ((f"no {PROMPT}".encode(),),)),
    "refused in a head": Script(
        400, [*JSON, (b"x-request-id", PROMPT.encode()), (b"warning", PROMPT.encode())], ((ECHO,),)
    ),
}
BAD_BODIES = (
    b'{"model": "m", "messages": [{"role": "user", "content": "%s' % PROMPT.encode(),
    b'{"model": "m", "messages": "%s", "input": {"%s": 1}}' % (PROMPT.encode(), PROMPT.encode()),
    b'{"model": "m", "temperature": "%s", "messages": [], "input": 5}' % PROMPT.encode(),
    b'{"model": "m", "%s": 1, "max_tokens": "%s", "messages": []}' % ((PROMPT.encode(),) * 2),
    b'{"model": "m", "tools": [{"type": "function", "function": {"name": "%s"}}], "messages": []}'
    % (b"!" + PROMPT.encode()),
    PROMPT.encode(),
    b"\xff" + PROMPT.encode(),
)


def kept(rig: ServerRig, caplog: pytest.LogCaptureFixture) -> str:
    records = b"\n".join(record_json(record) for record in rig.store.list().records)
    lines = [f"{line.getMessage()} {line.args!r} {line.exc_text} {line.exc_info!r}" for line in caplog.records]
    return "\n".join([records.decode(), caplog.text, *lines])


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_was_said_is_not_kept(path: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name, script in MISHAPS.items():
        for stream in (True, False):
            rig = ServerRig(*[script] * 4, providers=(provider("p", protocol=backend),))
            await rig.ask("POST", path, body(path, stream=stream))
            assert rig.client.sent, name
            assert MARK not in kept(rig, caplog), (name, stream)


@pytest.mark.parametrize("path", [*CALLS, "/v1/messages/count_tokens", "/v1/embeddings", "/api/embed", "/api/generate"])
async def test_what_could_not_be_read_is_not_kept(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for bad in BAD_BODIES:
        rig = ServerRig(Script(500, JSON, ((ECHO,),)))
        await rig.ask("POST", path, bad)
        assert MARK not in kept(rig, caplog), bad
