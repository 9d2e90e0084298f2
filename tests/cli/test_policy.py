"""`strom policy explain`: what qualifies, and why the rest does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Served, Strom

CONFIG = """
[[providers]]
name = "home"
base_url = "http://127.0.0.1:9001"
region = "eu-de"
sovereignty_class = "eu-owned"
[[providers]]
name = "far"
base_url = "http://127.0.0.1:9002"
region = "us-east"
[[models]]
name = "m"
fallback_models = ["n"]
[[models.endpoints]]
id = "e1"
provider = "home"
[[models.endpoints]]
id = "e2"
provider = "far"
order = 2
[[models]]
name = "n"
[[models.endpoints]]
id = "e3"
provider = "home"
[[policies]]
id = "eu"
regions = ["eu-*"]
sovereignty_classes = ["eu-owned"]
[[policies]]
id = "far-only"
providers = ["far"]
[[keys]]
name = "ci"
key_sha256 = "{digest}"
policy = "eu"
models = ["m"]
""".replace("{digest}", "0" * 64)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "strom.toml"
    path.write_text(CONFIG)
    return str(path)


def test_every_endpoint_with_its_reasons(strom: Strom, config: str) -> None:
    shown = strom("policy", "explain", "m", "--key", "ci", "--config", config)
    assert shown.code == 0
    head, titles, *lines = shown.out.splitlines()
    assert head == "Policies that bind: eu"
    assert titles.split()[:2] == ["ENDPOINT", "MODEL"]
    assert [line.split()[0] for line in lines] == ["e1", "e2", "e3"]
    assert " yes " in lines[0]
    assert "region 'us-east' is none of eu-*" in lines[1]
    assert "its sovereignty class is not told" in lines[1]
    assert "the key 'ci' may not use the model 'n'" in lines[2]


def test_as_json_and_a_code_that_says_whether_any_qualifies(strom: Strom, config: str) -> None:
    told = strom("policy", "explain", "m", "--policy", "eu", "--config", config, "--json")
    assert told.code == 0
    assert [(row["endpoint_id"], row["qualifies"], row["fallback"]) for row in told.json["endpoints"]] == [
        ("e1", True, False),
        ("e2", False, False),
        ("e3", True, True),
    ]
    both = strom("policy", "explain", "m", "--key", "ci", "--policy", "far-only", "--config", config, "--json")
    assert both.code == 1
    assert both.json["policies"] == ["eu", "far-only"]
    assert not any(row["qualifies"] for row in both.json["endpoints"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["x"], "not served"), (["m", "--key", "who"], "Known: ci"), (["m", "--policy", "who"], "no policy 'who'")],
)
def test_names_that_are_none(strom: Strom, config: str, arguments: list[str], words: str) -> None:
    told = strom("policy", "explain", *arguments, "--config", config)
    assert told.code == 1
    assert words in told.err


@pytest.fixture
def managed(strom: Strom, config: str, tmp_path: Path) -> str:
    """The configuration with a store that holds a key; its secret."""
    with Path(config).open("a") as file:
        file.write(f'[store]\nurl = "sqlite:///{tmp_path / "s.db"}"\n')
    secret = strom("keys", "create", "anna", "--policy", "eu", "--config", config).out.strip()
    assert secret.startswith("sk-strom-")
    return secret


def test_managed_keys_are_known_by_name_id_and_prefix(strom: Strom, config: str, managed: str) -> None:
    row = strom("keys", "show", "anna", "--config", config, "--json").json
    for name in ("anna", row["id"], row["prefix"], managed):
        told = strom("policy", "explain", "m", "--key", name, "--config", config, "--json")
        assert (told.code, told.json["key"], told.json["policies"]) == (0, "anna", ["eu"])
        assert managed not in told.out + told.err
    assert strom("policy", "explain", "m", "--key", "who", "--config", config).err.count("Known: ci, anna") == 1


def test_a_running_gateway_is_asked(strom: Strom, config: str, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = strom("policy", "explain", "m", "--key", "ci", "--config", config, "--json").json
    served.answers["/platform/v1/policies/explain"] = (200, offline)
    monkeypatch.setenv("ADMIN", "sk-admin")
    shown = strom("policy", "explain", "m", "--key", "ci", "--url", served.url, "--api-key-env", "ADMIN", "--json")
    assert (shown.code, shown.json) == (0, offline)
    path, headers = served.requests[0]
    assert (path, headers["authorization"]) == ("/platform/v1/policies/explain?model=m&key=ci", "Bearer sk-admin")
    served.answers["/platform/v1/policies/explain"] = (404, {"status": 404, "detail": "There is no key 'x'."})
    refused = strom("policy", "explain", "m", "--key", "x", "--url", served.url)
    assert (refused.code, "There is no key 'x'." in refused.err) == (1, True)
    served.answers["/platform/v1/policies/explain"] = (200, {"hello": "world"})
    assert "is no explanation" in strom("policy", "explain", "m", "--url", served.url).err
