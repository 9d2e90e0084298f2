"""The same program sees the same events: straight from a backend in each protocol, and through Strom's gateway before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import strom
from strom.upstreams.settings import ProtocolName
from tests.agreement import program
from tests.agreement.backend import PATHS, ScriptedBackend
from tests.agreement.serving import gateway as serving

PROTOCOLS: tuple[ProtocolName, ...] = ("openai-chat", "openai-responses", "anthropic", "ollama")


@pytest.fixture(scope="module")
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend(program.script) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(backend: ScriptedBackend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One gateway before the backend in all four protocols: the models are called `behind-PROTOCOL/m`."""
    providers = {f"behind-{protocol}": (protocol, backend.url) for protocol in PROTOCOLS}
    with serving(tmp_path_factory.mktemp("agreement"), providers) as url:
        yield url


def test_all_protocols_are_tried() -> None:
    assert set(PROTOCOLS) == set(PATHS.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_direct(protocol: ProtocolName, backend: ScriptedBackend) -> None:
    before = len(backend.asked)
    assert program.run(strom.Model("m", base_url=backend.url, protocol=protocol)) == program.EXPECTED
    assert {asked.protocol for asked in backend.asked[before:]} == {protocol}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_direct_async(protocol: ProtocolName, backend: ScriptedBackend) -> None:
    seen = await program.run_async(strom.AsyncModel("m", base_url=backend.url, protocol=protocol))
    assert seen == {name: program.EXPECTED[name] for name in seen}


@pytest.mark.parametrize("behind", PROTOCOLS)
@pytest.mark.parametrize("front", PROTOCOLS)
def test_through_the_gateway(front: ProtocolName, behind: ProtocolName, backend: ScriptedBackend, gateway: str) -> None:
    before = len(backend.asked)
    model = strom.Model(f"behind-{behind}/m", base_url=gateway, protocol=front)
    assert program.run(model) == program.BEHIND_A_GATEWAY
    assert {asked.protocol for asked in backend.asked[before:]} == {behind}
