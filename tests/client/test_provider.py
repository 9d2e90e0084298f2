"""Which upstream a name means: rows, addresses, protocols, keys (issue item 1)."""

from __future__ import annotations

import pytest

import strom
from strom.client.provider import Address, resolve
from strom.upstreams.rows import UPSTREAMS

OWN_ADDRESS = [kind for kind, row in UPSTREAMS.items() if row.base_url]


@pytest.mark.parametrize("kind", OWN_ADDRESS)
def test_every_row_with_its_own_address(kind: str) -> None:
    environ = dict.fromkeys(UPSTREAMS[kind].key_names, "k")
    found = resolve(Address(f"{kind}/some/model"), environ)
    found.demand_key()
    assert (found.model, found.upstream.kind, found.upstream.protocol) == ("some/model", kind, UPSTREAMS[kind].protocol)


@pytest.mark.parametrize("kind", UPSTREAMS)
def test_every_row_elsewhere(kind: str) -> None:
    found = resolve(Address(f"{kind}/m", base_url="http://127.0.0.1:9/v1"), {})
    found.demand_key()  # whoever names an address may need none
    assert (found.model, found.upstream.kind) == ("m", kind)
    assert found.upstream.origin.port == 9


def test_any_server_and_a_gateway() -> None:
    found = resolve(Address("Qwen/Qwen3-8B", base_url="http://127.0.0.1:8080"), {})
    assert (found.model, found.upstream.kind, found.local) == ("Qwen/Qwen3-8B", "generic", False)
    found = resolve(Address("x", base_url="http://127.0.0.1:8080", protocol="anthropic", api_key="k"), {})
    assert found.upstream.auth_headers == [(b"x-api-key", b"k")]


def test_with_a_provider_the_name_goes_out_as_it_is() -> None:
    found = resolve(Address("ollama/x", provider="generic", base_url="http://gateway:1"), {})
    assert found.model == "ollama/x"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (Address("qwen3"), "provider/model"),
        (Address("noris/m"), "base_url"),
        (Address("m", provider="nobody"), "no provider 'nobody'"),
        (Address("m", base_url="ftp://x"), "http"),
        (Address("m", base_url="http://x", quirks={"unknown": 1}), "quirks"),
    ],
)
def test_what_is_not_clear_is_told(address: Address, words: str) -> None:
    with pytest.raises(strom.BadRequest, match=words):
        resolve(address, {})


def test_keys() -> None:
    environ = {"GOOGLE_API_KEY": "second", "OPENAI_API_KEY": "o"}
    assert resolve(Address("gemini/m"), environ).upstream.auth_headers == [(b"authorization", b"Bearer second")]
    assert resolve(Address("gemini/m", api_key="mine"), environ).upstream.auth_headers[0][1] == b"Bearer mine"
    assert resolve(Address("openai/m", api_key=None), environ).upstream.auth_headers == []
    azure = resolve(Address("azure-openai/m", base_url="https://r.openai.azure.com/openai/v1", api_key="a"), {})
    assert azure.upstream.auth_headers == [(b"api-key", b"a")]


def test_keys_are_not_shown() -> None:
    model = strom.Model("openai/gpt", api_key="sk-secret")
    assert "sk-secret" not in repr(model)
    assert "openai" in repr(model)
