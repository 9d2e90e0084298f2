"""What is empty is shared between calls: no call, however it ends, may leave anything in it for the next one."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Collection
from typing import Any

import pytest

from strom.protocols.table import CODECS
from strom.transport.connection import UpstreamConnection
from strom.transport.memory import MemoryExchange
from strom.transport.server import ServerConnection
from strom.transport.types import TransportFailure
from tests.gateway.rig import JSON, SSE, Rig, body_of
from tests.matrix.plays import BEHIND, FRONTS, Stage, quirks_of
from tests.recordings import Recording, index, load, names, recordings_root

LONGEST_BYTES = 40_000
_SHARING = (UpstreamConnection, ServerConnection)
"""Their modules share something, too."""


def shared() -> dict[str, Collection[Any]]:
    """Every list, dict and set of ours that is called nothing: `_NO_NAMES`, `_NOTHING_FOREIGN`."""
    return {
        f"{module.__name__}.{name}": value
        for module in list(sys.modules.values())
        if module.__name__.startswith("strom.")
        for name, value in vars(module).items()
        if name.lstrip("_").startswith(("NO_", "NONE_", "NOTHING_")) and isinstance(value, list | dict | set)
    }


def _recordings() -> list[tuple[str, str]]:
    found = [name for protocol in BEHIND for name in names(protocol=protocol)]
    sizes = {(entry["engine"], entry["case"]): entry["bytes"] for entry in index()} if found else {}
    return [name for name in found if sizes[name] <= LONGEST_BYTES]


def test_they_are_found() -> None:
    recordings_root()
    assert len(shared()) >= 9


@pytest.mark.parametrize(("engine", "case"), _recordings())
def test_nothing_is_left_in_them(engine: str, case: str) -> None:
    recording = load(engine, case)
    stage = Stage(recording)
    for front in FRONTS:
        for streamed in (True, False):
            stage.play(front, streamed=streamed)
            _break_off(recording, front, streamed=streamed)
    assert {name: value for name, value in shared().items() if value} == {}


OF_ONE_PROTOCOL: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "model": "m", "usage": {}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sealed"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "sealed"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": {"type": "x"}}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("front", FRONTS)
def test_what_only_one_protocol_knows_is_not_left_either(front: str) -> None:
    rig = Rig("anthropic")
    rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().end(
        *(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in OF_ONE_PROTOCOL)
    )
    assert rig.record.complete
    assert {name: value for name, value in shared().items() if value} == {}


def _break_off(recording: Recording, front: str, *, streamed: bool) -> None:
    """The same with a fault in the middle: cut, lost, refused, garbage, a client that leaves; and a second endpoint."""
    draw = random.Random(f"{recording.engine} {recording.case} {front} {streamed}")
    for way in ("cut", "lost", "garbage", "left", "refused"):
        rig = Rig(
            BEHIND[recording.index["protocol"]], quirks=quirks_of(recording), endpoints=2, continuation=way == "cut"
        )
        headers = [(b"x-strom-session", b"s")]
        exchange = MemoryExchange("POST", "/", headers=headers, body=body_of(front, stream=streamed))
        rig.gateway.handle_call(exchange, CODECS[front])
        upstream = rig.upstream()
        upstream.response(500 if way == "refused" else recording.index["status"], SSE if streamed else JSON)
        pieces = recording.chunks
        for piece in pieces[: draw.randrange(len(pieces) + 1)]:
            if not upstream.over:
                upstream.read(piece if way != "garbage" else bytes(draw.randbytes(3)) + piece)
        if way == "left" and exchange.state != "finished":
            exchange.disconnect()
        elif not upstream.over and way == "lost":
            upstream.fail(TransportFailure("cut", "lost", sent=True))
        elif not upstream.over:
            upstream.end()
        rig.clock.advance(1000)
