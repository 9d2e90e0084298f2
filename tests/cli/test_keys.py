"""`strom keys`: in a store, and through a running gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strom.cli.main import run
from tests.cli.conftest import Strom


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'strom.db'}"


def test_the_secret_alone_goes_to_standard_output(strom: Strom, store: str) -> None:
    outcome = strom("keys", "create", "ci", "--store", store)
    assert outcome.code == 0
    assert outcome.out.startswith("sk-strom-")
    assert len(outcome.out.split()) == 1
    assert "shown this once" in outcome.err


def test_everything_a_key_may_be_given(strom: Strom, store: str) -> None:
    options = [
        "--model",
        "qwen*",
        "--model",
        "m",
        "--route",
        "/v1/*",
        "--admin",
        "--may-pin-endpoint",
        "--expires",
        "30d",
    ]
    limits = [
        "--requests-per-minute",
        "5",
        "--tokens-per-minute",
        "6",
        "--concurrent",
        "7",
        "--budget",
        "20.5 EUR/week",
    ]
    made = strom("keys", "create", "ci", "--store", store, "--json", *options, *limits).json["key"]
    shown = strom("keys", "show", "ci", "--store", store, "--json").json
    assert shown == made
    assert (shown["models"], shown["routes"], shown["admin"]) == (["qwen*", "m"], ["/v1/*"], True)
    budget = {"amount": 20.5, "currency": "EUR", "per": "week"}
    assert shown["limits"] == {"requests_per_minute": 5, "tokens_per_minute": 6, "concurrent": 7, "budget": budget}
    assert shown["expires_at"] > shown["created_at"]
    assert "budget 20.5 EUR/week" in strom("keys", "show", "ci", "--store", store).out


def test_the_life_of_a_key(strom: Strom, store: str) -> None:
    made = strom("keys", "create", "ci", "--store", store, "--json").json
    rotated = strom("keys", "rotate", made["key"]["prefix"], "--overlap", "2h", "--store", store, "--json").json
    assert rotated["key"]["id"] == made["key"]["id"]
    assert rotated["secret"] != made["secret"]
    states = []
    for action in ("disable", "enable", "revoke"):
        assert strom("keys", action, "ci", "--store", store).code == 0
        states.append(strom("keys", "list", "--all", "--store", store).out.splitlines()[1].split()[2])
    assert states == ["disabled", "active", "revoked"]
    assert strom("keys", "list", "--store", store, "--json").json["data"] == []
    assert made["secret"] not in strom("keys", "list", "--all", "--store", store, "--json").out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "ci", "--budget", "much"], 2, "expected an amount like"),
        (["create", "ci", "--expires", "soon"], 2, "expected a time like"),
        (["rotate", "ci", "--overlap", "long"], 2, "expected an age like"),
        (["show", "nobody"], 1, "There is no key 'nobody'"),
        (["create", "sk-strom-x"], 1, "begins secrets"),
        (["create", ""], 1, "name: expected `str` of length >= 1"),
    ],
)
def test_what_cannot_be(strom: Strom, store: str, arguments: list[str], code: int, words: str) -> None:
    outcome = strom("keys", *arguments, "--store", store)
    assert outcome.code == code
    assert words in outcome.err


def test_a_memory_store_is_its_processes_own(strom: Strom) -> None:
    outcome = strom("keys", "list", "--store", "memory://")
    assert outcome.code == 1
    assert "--url" in outcome.err


def test_places_exclude_each_other(strom: Strom, store: str) -> None:
    assert strom("keys", "list", "--store", store, "--url", "http://127.0.0.1:1").code == 2
    assert strom("keys", "list", "--api-key-env", "K").code == 2


def test_a_policy_must_be_known_where_there_is_a_configuration(strom: Strom, tmp_path: Path) -> None:
    config = tmp_path / "strom.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/s.db"\n[[policies]]\nid = "eu"\n')
    assert strom("keys", "create", "a", "--policy", "eu", "--config", str(config)).code == 0
    refused = strom("keys", "create", "b", "--policy", "us", "--config", str(config))
    assert refused.code == 1
    assert "Known: eu" in refused.err


class _Api:
    """Stands for a gateway: notes what is asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._answer = answer

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((method, path, body))
        return {"data": [self._answer["key"]], "next_cursor": None} if "?" in path else self._answer


def test_through_a_gateway_the_same_words_go_over_http(
    monkeypatch: pytest.MonkeyPatch, strom: Strom, store: str
) -> None:
    made = strom("keys", "create", "ci", "--store", store, "--json").json
    api = _Api({**made, **made["key"]})
    monkeypatch.setattr("strom.cli.http.gateway_api", lambda url, key_env: api)
    for arguments in (
        ["create", "ci"], ["list"], ["show", "ci"], ["rotate", "ci", "--overlap", "5s"], ["revoke", made["secret"]],
        ["disable", "ci"], ["enable", "a b"],
    ):  # fmt: skip
        assert run(["keys", *arguments, "--url", "http://gateway"]) == 0
    path = "/platform/v1/keys"
    assert [(method, where) for method, where, _ in api.asked] == [
        ("POST", path),
        ("GET", f"{path}?limit=100"),
        ("GET", f"{path}/ci"),
        ("POST", f"{path}/ci/rotate"),
        ("DELETE", f"{path}/{made['key']['prefix']}"),
        ("POST", f"{path}/ci/disable"),
        ("POST", f"{path}/a%20b/enable"),
    ]
    assert api.asked[3][2] == {"overlap_s": 5.0}
