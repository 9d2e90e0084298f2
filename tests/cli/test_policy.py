"""`strom policy explain`: what qualifies, and why the rest does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Strom

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
