"""Plays a recording behind the real gateway for a client of any front protocol: in memory, with a clock that a test turns.

The upstream's answer is what was recorded, in the pieces in which it came; the client asks for a stream or for a whole reply,
whichever the recording is.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from strom.core.record import CallRecord
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryExchange
from tests.gateway.rig import JSON, PATHS, SSE, Rig
from tests.matrix.views import Answer
from tests.recordings import Recording

BEHIND = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses"}
"""The recordings' names of protocols, and ours."""
FRONTS = ("openai-chat", "anthropic", "openai-responses", "ollama")
_MESSAGES = [{"role": "user", "content": "hi"}]
_TURNS: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": _MESSAGES},
    "anthropic": {"messages": _MESSAGES, "max_tokens": 64},
    "openai-responses": {"input": "hi", "store": False},
    "ollama": {"messages": _MESSAGES},
}
_LINGER_S = 3.0


class Played(NamedTuple):
    """What a client got, and what the record of the call says."""

    answer: Answer
    record: CallRecord


def quirks_of(recording: Recording) -> Quirks:
    """`transformers serve` sends no [DONE]: what its row in the table of providers says."""
    return Quirks(done_required=not recording.engine.startswith("transformers"))


def is_proven(recording: Recording) -> bool | None:
    """Whether the recorded answer proves its end, with the quirks of its provider. None: it is an error."""
    entry = recording.index
    if entry["status"] != 200:
        return None
    if not quirks_of(recording).done_required and entry["protocol"] == "chat" and entry["case"] != "abort":
        return entry["finish_reason"] is not None
    return bool(entry["ends_with_proof"])


class Stage:
    """One recording, for any number of clients."""

    def __init__(self, recording: Recording) -> None:
        self.behind = BEHIND[recording.index["protocol"]]
        self._recording = recording
        self._rig = Rig(self.behind, quirks=quirks_of(recording))

    def play(self, front: str, *, streamed: bool) -> Played:
        rig = self._rig
        request = {"model": "m", **_TURNS[front], "stream": streamed}
        if streamed and front == "openai-chat":
            request["stream_options"] = {"include_usage": True}
        exchange = MemoryExchange("POST", PATHS[front], body=json.dumps(request).encode())
        rig.gateway.handle_call(exchange, CODECS[front])
        self._answer()
        rig.clock.advance(_LINGER_S)
        assert exchange.state == "finished", exchange.state
        (record,) = rig.records.all
        rig.records.all.clear()
        rig.client.sent.clear()
        return Played(Answer(front, streamed, exchange.status, exchange.body_out), record)

    def _answer(self) -> None:
        upstream, recording = self._rig.upstream(), self._recording
        upstream.response(recording.index["status"], SSE if recording.index["streamed"] else JSON)
        for chunk in recording.chunks:
            upstream.read(chunk)
        upstream.end()
