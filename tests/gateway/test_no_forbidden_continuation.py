"""No forbidden endpoint receives a byte of an answer that goes on elsewhere, either: random places, policies and protocols, and
upstreams that each break off in the middle, until one does not.

The property of test_no_forbidden_byte.py leaves to chance whether an answer is ever continued. Here nearly all are, and how
many were is part of the test. The text so far is what would leak: it is not in the first request.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.access import PolicySettings
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.types import TransportFailure
from strom.upstreams.settings import EndpointSettings, ModelSettings, ProviderSettings, Strategy
from tests.gateway.places import NAMES, Field
from tests.gateway.rig import PATHS, SSE
from tests.gateway.test_no_forbidden_byte import (
    CLASSES,
    PATTERNS,
    PROTOCOLS,
    REGIONS,
    RETENTIONS,
    body_of,
    forbidden,
    make,
    some,
    turn,
)

TOLD = "once upon a time "
NDJSON = [(b"content-type", b"application/x-ndjson")]
CUT = TransportFailure("cut", "", sent=True)


def _sse(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def first_words(path: str) -> bytes:
    """An answer's beginning in the protocol of that path, its first text included."""
    if path.endswith("/chat/completions"):
        delta = {"index": 0, "delta": {"role": "assistant", "content": TOLD}, "finish_reason": None}
        return b"data: " + json.dumps({"id": "c", "choices": [delta]}).encode() + b"\n\n"
    if path.endswith("/messages"):
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "real", "content": []}
        start = {
            **message,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }
        return (
            _sse("message_start", message=start)
            + _sse("content_block_start", index=0, content_block={"type": "text", "text": ""})
            + _sse("content_block_delta", index=0, delta={"type": "text_delta", "text": TOLD})
        )
    if path.endswith("/responses"):
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        begun = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "real", "output": []}
        return (
            _sse("response.created", sequence_number=0, response=begun)
            + _sse("response.output_item.added", sequence_number=1, output_index=0, item=item)
            + _sse("response.content_part.added", sequence_number=2, **place, part={"type": "output_text", "text": ""})
            + _sse("response.output_text.delta", sequence_number=3, **place, delta=TOLD)
        )
    line = {"model": "real", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": TOLD}}
    return json.dumps({**line, "done": False}).encode() + b"\n"


def break_off(sent: MemoryUpstream) -> None:
    path = sent.request.target.partition("?")[0]
    sent.response(200, NDJSON if path.startswith("/api/") else SSE)
    sent.read(first_words(path))
    sent.fail(CUT)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Any, ...]:
    """As in the other property, but every model goes on, and there is always somewhere to go on to."""
    places = [
        ProviderSettings(
            name,
            "generic",
            draw(st.sampled_from(PROTOCOLS)),
            f"http://127.0.0.1:{9000 + at}/v1",
            region=draw(st.sampled_from(REGIONS)),
            sovereignty_class=draw(st.sampled_from(CLASSES)),
            retention=draw(st.sampled_from(RETENTIONS)),
        )
        for at, name in enumerate(NAMES[: draw(st.integers(3, 6))])
    ]
    split = draw(st.integers(1, len(places) - 1))

    def model(name: str, where: list[ProviderSettings], fallback: tuple[str, ...]) -> ModelSettings:
        endpoints = tuple(
            EndpointSettings(f"{name}-{place.name}", place.name, "real", order=draw(st.integers(1, 2)))
            for place in where
        )
        strategy: Strategy = draw(st.sampled_from(("weighted", "least-busy", "fastest")))
        return ModelSettings(name, endpoints, strategy=strategy, fallback_models=fallback, continuation=True)

    models = [model("m", places[:split], ("n",)), model("n", places[split:], ())]
    policies = tuple(
        PolicySettings(name, **{part: draw(some(patterns)) for part, patterns in PATTERNS.items()})
        for name in ("p", "q")
    )
    return places, models, policies, draw(st.sampled_from((None, "p"))), draw(st.sampled_from((None, "q")))


STEPS = st.lists(st.tuples(st.sampled_from(sorted(PATHS.values())), st.booleans()), min_size=1, max_size=3)


async def live(world: tuple[Any, ...], steps: list[tuple[str, bool]]) -> Field:
    """Each call is asked of one upstream after the other, of which each breaks off. A refusal now and then comes first."""
    field, app = make(world)
    headers = [(b"x-api-key", b"k"), *([(b"x-strom-policy", world[4].encode())] if world[4] else [])]
    seen = 0
    for path, refuses in steps:
        refused = refuses
        app.handle(MemoryExchange("POST", path, headers=headers, body=body_of(path, "m", "hi", stream=True)))
        await turn()
        while seen < len(field.client.sent):
            sent, seen = field.client.sent[seen], seen + 1
            if refused:
                sent.response(503, [])
                sent.end(b"{}")
                refused = False
            else:
                break_off(sent)
            await turn()
    await app.close()
    return field


def test_no_forbidden_endpoint_goes_on_with_an_answer() -> None:
    continued: list[str] = []

    @settings(max_examples=200)
    @given(worlds(), STEPS)
    def holds(world: tuple[Any, ...], steps: list[tuple[str, bool]]) -> None:
        places, _, policies, own, wanted = world
        binding = [policy for policy in policies if policy.id in (own, wanted)]
        field = asyncio.run(live(world, steps))
        allowed = {each.name for each in places if not forbidden(each, binding)}
        sent = zip(field.asked, field.client.sent, strict=True)
        told = [name for name, each in sent if TOLD.strip().encode() in each.request.body]
        assert set(field.asked) <= allowed
        if binding and len(allowed) < len(places):
            continued.extend(told)

    holds()
    assert len(continued) >= 20, "continuations under a policy that forbids something"
    assert len(set(continued)) > 2
