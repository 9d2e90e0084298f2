"""Fields that say where calls go: what they become, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.config.load import load_settings
from strom.config.settings import Overrides, Settings
from strom.core.errors import ConfigError
from strom.upstreams.settings import EndpointSettings, HealthSettings

GOOD = """
[[providers]]
name = "a"
base_url = "http://127.0.0.1:9"
[providers.health]
failures = 3
probe_s = 15
[[models]]
name = "m"
strategy = "fastest"
affinity = "conversation"
retries = 2
fallback_models = ["n"]
[[models.endpoints]]
provider = "a"
max_concurrent = 4
queue = 8
queue_timeout_s = 12
[[models]]
name = "n"
[[models.endpoints]]
id = "other"
provider = "a"
[[policies]]
id = "p"
providers = ["a*"]
[[keys]]
name = "k"
key_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
may_pin_endpoint = true
"""


def load(folder: Path, text: str) -> Settings:
    path = folder / "strom.toml"
    path.write_text(text)
    return load_settings(path, Overrides(), {})


def test_what_a_file_says_of_routes(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    model, other = settings.models
    assert (model.strategy, model.affinity, model.retries, model.fallback_models) == (
        "fastest",
        "conversation",
        2,
        ("n",),
    )
    assert model.endpoints == (EndpointSettings("a/m", "a", "m", max_concurrent=4, queue=8, queue_timeout_s=12),)
    assert (other.strategy, other.affinity, other.retries, other.fallback_models) == ("weighted", "off", 0, ())
    assert settings.providers["a"].health == HealthSettings(failures=3, probe_s=15)
    assert settings.policies[0].providers == ("a*",)
    assert settings.keys[0].may_pin_endpoint


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('["n"]', '["o"]', "models[0].fallback_models[0]: there is no model 'o'"),
        ('["n"]', '["m"]', "models[0].fallback_models[0]: 'm' is asked anyway"),
        ('["n"]', '["n", "n"]', "models[0].fallback_models[1]: 'n' is asked anyway"),
        ("max_concurrent = 4\n", "", "models[0].endpoints[0].queue: nobody waits without a max_concurrent"),
        ('"fastest"', '"quickest"', "models[0].strategy: expected one of weighted, least-busy, fastest"),
        ("retries = 2", "retries = 11", "models[0].retries"),
        ("failures = 3", "failures = 0", "providers[0].health.failures"),
        ("probe_s = 15", "probes = 15", "providers[0].health.probes: unknown key"),
        ('["a*"]', '["a["]', "policies[0].providers[0]: the bracket"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_path(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert told in caught.value.message
