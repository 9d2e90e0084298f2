"""Looks at endpoints that traffic tells nothing of."""

from __future__ import annotations

import asyncio

import pytest

from strom.core.errors import ProviderAuthError
from strom.gateway.board import Board
from strom.gateway.plan import Endpoint
from strom.gateway.probing import Prober
from strom.transport.memory import MemoryClient, Script
from strom.transport.types import TransportFailure
from strom.upstreams.settings import HealthSettings
from strom.upstreams.upstream import Upstream
from tests.gateway.places import provider
from tests.gateway.rig import FakeClock

HEALTH = HealthSettings(probe_s=10, failures=2)
CUT = Script(0, failure=TransportFailure("connect", "refused", sent=False))


class Looks:
    """Two endpoints of one provider."""

    def __init__(self, *scripts: Script, protocol: str = "openai-chat") -> None:
        self.clock = FakeClock()
        self.board = Board(self.clock.time, draw=lambda: 0.5)
        self.client = MemoryClient(*scripts)
        self.upstream = Upstream(provider("a", protocol, health=HEALTH))
        self.one, self.two = (Endpoint(name, self.upstream, "real") for name in ("one", "two"))
        self.prober = Prober(self.client, self.board, lambda: [self.one, self.two])

    def circuits(self) -> list[str]:
        return [self.board.condition(endpoint).circuit for endpoint in (self.one, self.two)]


@pytest.mark.parametrize(("protocol", "path"), [("openai-chat", "/v1/models"), ("ollama", "/api/tags")])
async def test_one_light_question_for_all_that_are_idle(protocol: str, path: str) -> None:
    looks = Looks(Script(200), protocol=protocol)
    await looks.prober.look(looks.upstream)
    (sent,) = looks.client.sent
    assert (sent.request.method, sent.request.target, sent.request.body) == ("GET", path, b"")
    assert looks.circuits() == ["closed", "closed"]


async def test_what_is_in_use_is_not_looked_at() -> None:
    looks = Looks()
    for endpoint in (looks.one, looks.two):
        looks.board.began(endpoint)
        looks.board.ended(endpoint, None, 1)
    await looks.prober.look(looks.upstream)
    assert not looks.client.sent


@pytest.mark.parametrize("bad", [CUT, Script(503), Script(401)])
async def test_bad_looks_open_and_a_good_one_invites_a_trial(bad: Script) -> None:
    looks = Looks(bad, bad, Script(404))
    for _ in range(2):
        await looks.prober.look(looks.upstream)
    assert looks.circuits() == ["open", "open"]
    await looks.prober.look(looks.upstream)
    assert looks.circuits() == ["half-open", "half-open"], "it lives, whatever it says to this question"


async def test_only_the_broken_one_of_a_provider_is_judged() -> None:
    looks = Looks(Script(200))
    for endpoint, error in ((looks.one, None), (looks.two, ProviderAuthError("x"))):
        looks.board.began(endpoint)
        looks.board.ended(endpoint, error, None)
    await looks.prober.look(looks.upstream)
    assert looks.circuits() == ["closed", "half-open"]


async def test_it_runs_until_it_is_stopped() -> None:
    looks = Looks()
    looks.prober.start()
    looks.prober.start()
    await asyncio.sleep(0)
    running = [task for task in asyncio.all_tasks() if "_watch" in repr(task) and not task.cancelling()]
    assert len(running) == 1
    looks.prober.stop()
    await asyncio.gather(*running, return_exceptions=True)
    assert running[0].cancelled()
