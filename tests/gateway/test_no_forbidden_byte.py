"""No endpoint that a policy forbids ever receives a byte: random endpoints, policies, keys, requests and failures.

Whether an endpoint is forbidden is judged here from the plain settings, not by the code under test.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.access import KeySettings, PolicySettings
from strom.gateway.media import MediaFetcher, MediaLimits
from strom.gateway.services import CallSettings
from strom.protocols.table import CODECS
from strom.server.app import App
from strom.server.models import ModelLister
from strom.server.pages import Pages
from strom.server.platform import Platform
from strom.stores.memory import MemoryStore
from strom.transport.download import Downloaded
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.types import TransportFailure
from strom.upstreams.settings import EndpointSettings, ModelSettings, ProviderSettings
from tests.gateway.places import NAMES, Field, provider
from tests.gateway.rig import JSON

REGIONS = ("eu-de", "eu-fr", "us-east", None)
CLASSES = ("eu-owned", "us-owned", None)
RETENTIONS = ("none", "30d", None)
PATTERNS = {
    "regions": ("eu-*", "us-*", "eu-de"),
    "sovereignty_classes": ("eu-owned", "*-owned"),
    "retentions": ("none",),
    "providers": ("a", "b", "[a-c]"),
}
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "ollama")
PNG = {"type": "image_url", "image_url": {"url": "http://media.example/x.png"}}


def some(values: Any, most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    """Often nothing: a policy that forbids everything shows little."""
    chosen = st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)
    return st.integers(0, 2).flatmap(lambda rare: st.just(()) if rare else chosen)


@st.composite
def providers(draw: st.DrawFn) -> list[ProviderSettings]:
    return [
        provider(
            name,
            draw(st.sampled_from(PROTOCOLS)),
            region=draw(st.sampled_from(REGIONS)),
            sovereignty_class=draw(st.sampled_from(CLASSES)),
            retention=draw(st.sampled_from(RETENTIONS)),
        )
        for name in NAMES[: draw(st.integers(1, 5))]
    ]


@st.composite
def models(draw: st.DrawFn, places: list[ProviderSettings]) -> list[ModelSettings]:
    found = []
    for name, fallback in (("m", ("n",)), ("n", ())):
        where = draw(st.lists(st.sampled_from(places), min_size=1, max_size=4, unique_by=lambda each: each.name))
        endpoints = tuple(
            EndpointSettings(
                f"{name}-{each.name}",
                each.name,
                "real",
                order=draw(st.integers(1, 2)),
                context_window=draw(st.sampled_from((None, 20, 100_000))),
                max_concurrent=draw(st.sampled_from((None, 1))),
                queue=1,
            )
            for each in where
        )
        found.append(
            ModelSettings(
                name,
                endpoints,
                strategy=draw(st.sampled_from(("weighted", "least-busy", "fastest"))),
                affinity=draw(st.sampled_from(("off", "conversation"))),
                retries=draw(st.integers(0, 1)),
                fallback_models=fallback,
                continuation=draw(st.booleans()),
            )
        )
    return found


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Any, ...]:
    places = draw(providers())
    policies = tuple(
        PolicySettings(name, **{part: draw(some(patterns)) for part, patterns in PATTERNS.items()})
        for name in ("p", "q")
    )
    wanted = draw(st.sampled_from((None, "p", "q")))
    own = draw(st.sampled_from((None, "p", "q")))
    return places, draw(models(places)) if draw(st.integers(0, 3)) else [], policies, own, wanted


REQUESTS = st.sampled_from(
    ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/v1/embeddings", "/api/embed",
     "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/models", "/api/tags", "/api/ps", "/api/show"]
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        REQUESTS,
        st.booleans(),
        st.sampled_from((None, "m-a", "m-b", "n-c", "a")),
        st.sampled_from(("hi", "long " * 60, "picture")),
        st.lists(
            st.sampled_from(("503", "429", "400", "401", "cut", "token then cut", "hang", "ok")), min_size=1, max_size=6
        ),
    ),
    min_size=1,
    max_size=5,
)


def forbidden(place: ProviderSettings, policies: list[PolicySettings]) -> bool:
    told = {
        "regions": place.region,
        "sovereignty_classes": place.sovereignty_class,
        "retentions": place.retention,
        "providers": place.name,
    }
    for policy in policies:
        for part, value in told.items():
            patterns = getattr(policy, part)
            if patterns and (value is None or not any(fnmatchcase(value, pattern) for pattern in patterns)):
                return True
    return False


def body_of(path: str, model: str, text: str, stream: bool) -> bytes:
    if path.startswith("/v1/embed") or path == "/api/embed":
        return json.dumps({"model": model, "input": text}).encode()
    if path.startswith("/v1/responses"):
        return json.dumps({"model": model, "input": text, "stream": stream}).encode()
    content: Any = [{"type": "text", "text": "x"}, PNG] if text == "picture" and "chat/comp" in path else text
    full = {"model": model, "messages": [{"role": "user", "content": content}], "stream": stream, "max_tokens": 9}
    return json.dumps(full).encode()


async def turn(times: int = 6) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def react(sent: MemoryUpstream, outcome: str) -> None:
    match outcome:
        case "503" | "429" | "400" | "401":
            sent.response(int(outcome), JSON)
            code = "context_length_exceeded" if outcome == "400" else "x"
            sent.end(json.dumps({"error": {"message": "no", "code": code, "type": "x"}}).encode())
        case "cut":
            sent.fail(TransportFailure("connect", "refused", sent=False))
        case "token then cut":
            sent.response(200, [(b"content-type", b"text/event-stream")])
            sent.read(b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}\n\n')
            sent.fail(TransportFailure("cut", "", sent=True))
        case "ok":
            sent.response(200, JSON)
            sent.end(b'{"models":[],"data":[]}')
        case _:
            pass


async def fake_resolve(origin: Any) -> list[str]:
    return ["93.184.216.34"]


async def fake_get(*_: Any, **__: Any) -> Downloaded:
    return Downloaded(200, [(b"content-type", b"image/png")], b"\x89PNG\r\n\x1a\n")


def make(world: tuple[Any, ...]) -> tuple[Field, App]:
    places, known, policies, own, _ = world
    key = KeySettings("k", hashlib.sha256(b"k").hexdigest(), policy=own, may_pin_endpoint=True)
    field = Field(known, places, policies, (key,), settings=CallSettings(fetch_media=MediaLimits(5, 1000, 5)))
    field.services.media = MediaFetcher(fake_resolve, fake_get)
    gateway = field.gateway
    return field, App(gateway, Pages(gateway), ModelLister(gateway), Platform(gateway, MemoryStore()))


async def live(world: tuple[Any, ...], steps: list[Any]) -> Field:
    field, app = make(world)
    wanted = world[4]
    seen = 0
    for path, stream, pin, text, outcomes in steps:
        headers = [(b"x-api-key", b"k")]
        headers += [(b"x-strom-policy", wanted.encode())] if wanted else []
        headers += [(b"x-strom-endpoint", pin.encode())] if pin else []
        get = path in ("/v1/models", "/api/tags", "/api/ps")
        body = b"" if get else body_of(path, "m" if world[1] else "a/m", text, stream)
        app.handle(MemoryExchange("GET" if get else "POST", path, headers=headers, body=body))
        await turn()
        for outcome in outcomes:
            for sent in field.client.sent[seen:]:
                seen += 1
                react(sent, outcome)
            await turn()
            field.clock.advance(2)
            await turn()
    for call in list(field.services.running):
        call.stop()
    await app.close()
    return field


def test_policies_are_named_by_codecs() -> None:
    """The property below is about every protocol there is."""
    assert set(PROTOCOLS) == set(CODECS)


@settings(max_examples=250)
@given(worlds(), STEPS)
def test_no_forbidden_endpoint_ever_receives_a_byte(world: tuple[Any, ...], steps: list[Any]) -> None:
    places, _, policies, own, wanted = world
    binding = [policy for policy in policies if policy.id in (own, wanted)]
    field = asyncio.run(live(world, steps))
    allowed = {each.name for each in places if not forbidden(each, binding)}
    assert set(field.asked) <= allowed


def test_a_wrong_plan_sends_nothing_either() -> None:
    """The last check stands alone: a plan that was made wrong is stopped where it is carried out."""
    places = [provider("a", region="us-east"), provider("b", region="eu-de")]
    known = [ModelSettings("m", (EndpointSettings("m-a", "a", "real"), EndpointSettings("m-b", "b", "real", order=2)))]
    eu = PolicySettings("p", regions=("eu-*",))
    field, app = make((places, known, (eu, PolicySettings("q")), None, "p"))
    right = field.router.plan("m", None, "p")
    everything = field.router.plan("m", None, None).endpoints
    wrong = msgspec.structs.replace(right, endpoints=everything)
    field.router.plan = lambda *_: wrong  # type: ignore[method-assign]
    field.call(headers=[(b"x-api-key", b"k")])
    assert field.asked == ["b"]
    del app
