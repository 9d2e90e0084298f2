"""`strom models`: from a gateway, a backend, a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Served, Strom

TWO = {"data": [{"id": "m1", "owned_by": "mlx"}, {"id": "m2"}, {"id": 3}, "x"]}


def test_of_a_gateway(strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers["/v1/models"] = (200, TWO)
    monkeypatch.setenv("K", " gw-1 ")
    shown = strom("models", "--url", served.url + "/v1", "--api-key-env", "K")
    assert shown == Outcome(0, "MODEL  PROVIDER\nm1     mlx\nm2     -\n", "")
    assert served.requests[0][1]["authorization"] == "Bearer gw-1"
    assert strom("models", "--url", served.url, "--json").json == [
        {"model": "m1", "provider": "mlx"},
        {"model": "m2", "provider": None},
    ]
    assert "authorization" not in served.requests[1][1]


def test_of_the_usual_gateway(strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers["/v1/models"] = (200, TWO)
    monkeypatch.setenv("STROM_PORT", served.url.rpartition(":")[2])
    assert strom("models").code == 0
    monkeypatch.setenv("STROM_HOST", "::1")
    monkeypatch.setenv("STROM_PORT", "9")
    assert "http://[::1]:9 cannot be reached" in strom("models").err


@pytest.mark.parametrize(
    ("protocol", "header"),
    [
        ("openai-chat", ("authorization", "Bearer up-1")),
        ("openai-responses", ("authorization", "Bearer up-1")),
        ("anthropic", ("x-api-key", "up-1")),
        ("ollama", ("authorization", "Bearer up-1")),
    ],
)
def test_of_a_backend(
    strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch, protocol: str, header: tuple[str, str]
) -> None:
    served.answers["/v1/models"] = (200, TWO)
    served.answers["/api/tags"] = (200, {"models": [{"name": "m1"}, {"name": "m2"}]})
    monkeypatch.setenv("K", "up-1")
    shown = strom("models", "--backend", served.url, "--protocol", protocol, "--api-key-env", "K", "--json")
    assert [row["model"] for row in shown.json] == ["m1", "m2"]
    path, headers = served.requests[0]
    assert path == ("/api/tags" if protocol == "ollama" else "/v1/models")
    assert headers[header[0]] == header[1]
    assert ("anthropic-version" in headers) == (protocol == "anthropic")


def test_of_several_backends(strom: Strom, served: Served) -> None:
    served.answers["/v1/models"] = (200, TWO)
    shown = strom("models", "--backend", served.url, "--backend", served.url, "--json")
    name = served.url.removeprefix("http://").replace(":", "-")
    assert [row["model"] for row in shown.json] == [f"{name}/m1", f"{name}/m2", f"{name}-2/m1", f"{name}-2/m2"]


def test_of_a_configuration_with_models(strom: Strom, tmp_path: Path) -> None:
    path = tmp_path / "strom.toml"
    path.write_text(
        """
        [[providers]]
        name = "a"
        base_url = "http://127.0.0.1:9"
        [[models]]
        name = "one"
        aliases = ["gpt-*", "claude-*"]
        endpoints = [{ provider = "a" }, { provider = "a", id = "b" }]
        [[models]]
        name = "two"
        endpoints = [{ provider = "a" }]
        """
    )
    assert strom("models", "--config", str(path)).out.splitlines() == [
        "MODEL  PROVIDER  ALIASES",
        "one    a         gpt-*, claude-*",
        "two    a         -",
    ]


def test_none(strom: Strom, served: Served) -> None:
    bodies: list[object] = [{"data": []}, {"other": 1}, [1]]
    for body in bodies:
        served.answers["/v1/models"] = (200, body)
        assert strom("models", "--url", served.url) == Outcome(0, "", "No models.\n")


def test_foreign_names_cannot_steer_the_terminal(strom: Strom, served: Served) -> None:
    served.answers["/v1/models"] = (200, {"data": [{"id": "m\x1b[31m\nx"}]})
    assert strom("models", "--url", served.url).out.splitlines()[1] == "m\ufffd[31m\ufffdx  -"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (401, {"error": {"message": "No key."}}),
            "answered 401: No key. (name the variable that holds a key with --api-key-env)",
        ),
        ((403, b""), "answered 403: Forbidden (name the variable"),
        ((404, {"error": "not here"}), "answered 404: not here"),
        ((500, b"<html>"), "answered 500: Internal Server Error"),
        ((502, {"error": {"code": 1}}), "answered 502: Bad Gateway"),
        ((200, b"<html>"), "did not answer with JSON"),
    ],
)
def test_what_goes_wrong(strom: Strom, served: Served, answer: tuple[int, object], words: str) -> None:
    served.answers["/v1/models"] = answer
    shown = strom("models", "--url", served.url)
    assert (shown.code, shown.out) == (1, "")
    assert words in shown.err


def test_a_backend_that_echoes_its_key(strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers["/v1/models"] = (401, {"error": {"message": "up-secret is wrong"}})
    monkeypatch.setenv("K", "up-secret")
    shown = strom("models", "--backend", served.url, "--api-key-env", "K")
    assert "*** is wrong (name the variable that holds a key with --api-key-env" in shown.err
    assert "up-secret" not in shown.err


def test_mistakes_in_addresses_and_variables(strom: Strom) -> None:
    assert (
        strom("models", "--url", "localhost").err
        == "strom: --url: expected a URL that begins with http:// or https://\n"
    )
    shown = strom("models", "--url", "http://127.0.0.1", "--api-key-env", "NONE")
    assert shown.err == "strom: the environment variable NONE is not set\n"
    assert "cannot be reached" in strom("models", "--url", "http://127.0.0.1:9").err
    assert "cannot be reached" in strom("models", "--url", "http://name.invalid").err
