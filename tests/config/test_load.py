"""A good configuration: what comes of it, and what beats what."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strom.config.load import load_settings
from strom.config.schema import AuthSettings, ServerSettings
from strom.config.settings import Backend, Overrides, Settings
from strom.core.access import Budget, KeySettings, Limits, PolicySettings
from strom.core.errors import ConfigError
from strom.protocols.codec import Quirks
from strom.upstreams.settings import EndpointSettings, ModelSettings, Price, ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts

CONTRACT = """
[server]
host = "127.0.0.1"
port = 8080
workers = 1
max_body_bytes = 33554432
heartbeat_s = 15
shutdown_grace_s = 30
routing_block = "strom"

[store]
url = "sqlite:///strom.db"

[shared]
url = "memory://"

[auth]
required = "auto"

[[providers]]
name = "mlx"
kind = "mlx-lm"
protocol = "openai-chat"
base_url = "http://127.0.0.1:8081/v1"
api_key_env = "MLX_API_KEY"
region = "eu-de"
sovereignty_class = "eu-owned"
retention = "none"
[providers.timeouts]
connect_s = 5
first_token_s = 120
idle_s = 60
[providers.quirks]
done_required = true
finish_reason_required = true
think_preopened = true

[[models]]
name = "qwen3-8b"
aliases = ["claude-*", "gpt-*"]
[[models.endpoints]]
id = "mlx-1"
provider = "mlx"
model = "mlx-community/Qwen3-8B-4bit"
order = 1
weight = 1
context_window = 32768
price = { input = 0.20, output = 0.60, currency = "EUR" }

[[policies]]
id = "eu-only"
regions = ["eu-*"]
sovereignty_classes = ["eu-owned"]
retentions = ["none"]

[[keys]]
name = "ci"
key_env = "STROM_KEY_CI"
policy = "eu-only"
models = ["qwen3-*"]
admin = false
[keys.limits]
requests_per_minute = 60
tokens_per_minute = 100000
concurrent = 8
budget = { amount = 20, currency = "EUR", per = "month" }
"""
"""The file of product.md section 4."""


def load(
    tmp_path: Path, text: str, environ: dict[str, str] | None = None, overrides: Overrides | None = None
) -> Settings:
    path = tmp_path / "strom.toml"
    path.write_text(text, "utf-8")
    return load_settings(path, overrides or Overrides(), environ or {})


def test_the_file_of_the_contract(tmp_path: Path) -> None:
    settings = load(tmp_path, CONTRACT, {"MLX_API_KEY": "up-1", "STROM_KEY_CI": "gw-1"})
    assert settings.server == ServerSettings()
    assert (settings.store_url, settings.shared_url) == ("sqlite:///strom.db", "memory://")
    assert settings.providers == {
        "mlx": ProviderSettings(
            name="mlx",
            kind="mlx-lm",
            protocol="openai-chat",
            base_url="http://127.0.0.1:8081/v1",
            auth="bearer",
            api_key=Secret("up-1"),
            region="eu-de",
            sovereignty_class="eu-owned",
            retention="none",
            timeouts=Timeouts(5, 120, 60),
            quirks=Quirks(tool_choice=False, response_format=False, images=False, think_preopened=True),
        )
    }
    price = Price(0.2, 0.6, "EUR")
    endpoint = EndpointSettings("mlx-1", "mlx", "mlx-community/Qwen3-8B-4bit", 1, 1, 32768, price)
    assert settings.models == (ModelSettings("qwen3-8b", (endpoint,), ("claude-*", "gpt-*")),)
    assert settings.policies == (PolicySettings("eu-only", ("eu-*",), ("eu-owned",), ("none",)),)
    limits = Limits(60, 100000, 8, Budget(20, "EUR", "month"))
    sha256 = hashlib.sha256(b"gw-1").hexdigest()
    assert settings.keys == (KeySettings("ci", sha256, "eu-only", ("qwen3-*",), limits, admin=False),)
    assert settings.secrets == (Secret("up-1"), Secret("gw-1"))
    assert settings.warnings == ()


def test_no_secret_is_in_the_repr_of_settings(tmp_path: Path) -> None:
    shown = repr(load(tmp_path, CONTRACT, {"MLX_API_KEY": "up-secret", "STROM_KEY_CI": "gw-secret"}))
    assert "up-secret" not in shown
    assert "gw-secret" not in shown


def test_without_a_file_everything_has_its_default() -> None:
    assert load_settings(None, Overrides(), {}) == Settings()


def test_flags_beat_variables_beat_the_file(tmp_path: Path) -> None:
    text = '[server]\nhost = "127.0.0.2"\nport = 1001\nworkers = 2\nlog_level = "error"'
    environ = {"STROM_PORT": "1002", "STROM_WORKERS": "3", "STROM_LOG_LEVEL": " DEBUG ", "STROM_HOST": ""}
    settings = load(tmp_path, text, environ, Overrides(workers=4))
    server = settings.server
    assert (server.host, server.port, server.workers, server.log_level) == ("127.0.0.2", 1002, 4, "debug")
    assert load(tmp_path, text, environ, Overrides(log_level="info")).server.log_level == "info"


@pytest.mark.parametrize(
    ("variable", "value", "section", "key", "expected"),
    [
        ("STROM_HOST", "0.0.0.0", "server", "host", "0.0.0.0"),
        ("STROM_MAX_BODY_BYTES", "2048", "server", "max_body_bytes", 2048),
        ("STROM_HEARTBEAT_S", "2.5", "server", "heartbeat_s", 2.5),
        ("STROM_SHUTDOWN_GRACE_S", "0", "server", "shutdown_grace_s", 0),
        ("STROM_ROUTING_BLOCK", "llmeu", "server", "routing_block", "llmeu"),
        ("STROM_REASONING", "Text", "server", "reasoning", "text"),
        ("STROM_LOG_FORMAT", "json", "server", "log_format", "json"),
        ("STROM_ACCESS_LOG", "True", "server", "access_log", True),
        ("STROM_ACCESS_LOG", "auto", "server", "access_log", "auto"),
        ("STROM_AUTH_REQUIRED", "true", "auth", "required", True),
        ("STROM_AUTH_REQUIRED", "auto", "auth", "required", "auto"),
    ],
)
def test_variables(variable: str, value: str, section: str, key: str, expected: object) -> None:
    settings = load_settings(None, Overrides(), {variable: value})
    assert getattr(getattr(settings, section), key) == expected


def test_variables_name_the_store_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("[server]\nport = 4711")
    settings = load_settings(None, Overrides(), {"STROM_CONFIG": str(path), "STROM_STORE_URL": "memory://"})
    assert (settings.server.port, settings.store_url) == (4711, "memory://")
    assert load_settings(None, Overrides(), {"STROM_SHARED_URL": "memory://"}).shared_url == "memory://"


def test_a_provider_may_be_a_name_and_a_kind(tmp_path: Path) -> None:
    settings = load(tmp_path, '[[providers]]\nname = "o"\nkind = "ollama"')
    quirks = Quirks(tool_choice=False, reasoning_field="reasoning", media_urls=False, prefill=True)
    expected = ProviderSettings("o", "ollama", "ollama", "http://127.0.0.1:11434", quirks=quirks)
    assert settings.providers["o"] == expected


def test_the_key_of_a_kind_comes_from_its_usual_variable(tmp_path: Path) -> None:
    text = '[[providers]]\nname = "a"\nkind = "anthropic"\n[[providers]]\nname = "g"\nkind = "gemini"'
    settings = load(tmp_path, text, {"ANTHROPIC_API_KEY": "k-1\n", "GOOGLE_API_KEY": "k-2"})
    assert settings.providers["a"].api_key == Secret("k-1")
    assert settings.providers["a"].auth == "x-api-key"
    assert settings.providers["g"].api_key == Secret("k-2")


def test_a_missing_key_of_a_provider_that_can_do_without_is_a_warning(tmp_path: Path) -> None:
    settings = load(tmp_path, '[[providers]]\nname = "a"\nbase_url = "http://h"\napi_key_env = "NONE"')
    assert settings.providers["a"].api_key is None
    assert settings.warnings == ("providers[0].api_key_env: the environment variable NONE is not set",)


def test_endpoints_take_name_and_id_from_where_they_stand(tmp_path: Path) -> None:
    text = """
    [[providers]]
    name = "a"
    base_url = "http://h"
    [[models]]
    name = "m"
    [[models.endpoints]]
    provider = "a"
    """
    assert load(tmp_path, text).models[0].endpoints == (EndpointSettings("a/m", "a", "m"),)


def test_key_sha256_is_taken_in_any_case(tmp_path: Path) -> None:
    settings = load(tmp_path, f'[[keys]]\nname = "a"\nkey_sha256 = "{"AB" * 32}"')
    assert settings.keys[0].sha256 == "ab" * 32
    assert settings.secrets == ()


# --- backends of the command line ----------------------------------------------------------------


def backends(*given: Backend, environ: dict[str, str] | None = None) -> Settings:
    return load_settings(None, Overrides(backends=given), environ or {})


def test_one_backend() -> None:
    settings = backends(Backend("http://127.0.0.1:8901"))
    assert settings.providers == {
        "127.0.0.1-8901": ProviderSettings("127.0.0.1-8901", "generic", "openai-chat", "http://127.0.0.1:8901")
    }


def test_several_backends_have_names_of_their_own(tmp_path: Path) -> None:
    urls = ("http://h:1/v1", "http://h:1", "http://[::1]:2", "https://api.example.com")
    settings = backends(*map(Backend, urls))
    assert list(settings.providers) == ["h-1", "h-1-2", "1-2", "api.example.com-443"]
    text = '[[providers]]\nname = "h-1"\nbase_url = "http://other"'
    added = load(tmp_path, text, overrides=Overrides(backends=(Backend("http://h:1"),)))
    assert list(added.providers) == ["h-1", "h-1-2"]


def test_a_backend_with_protocol_and_key() -> None:
    settings = backends(Backend("http://h:1", "anthropic", "KEY"), environ={"KEY": "up-1"})
    provider = settings.providers["h-1"]
    assert (provider.protocol, provider.auth, provider.api_key) == ("anthropic", "x-api-key", Secret("up-1"))


def test_what_is_wrong_with_a_backend_is_named_by_its_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--backend: expected a URL"):
        backends(Backend("localhost:1"))
    with pytest.raises(ConfigError, match=r"^--backend\[1\]: expected a URL"):
        backends(Backend("http://h"), Backend("localhost:1"))
    settings = backends(Backend("http://h", api_key_env="NONE"), Backend("http://i", api_key_env="NONE"))
    assert settings.warnings == (
        "--api-key-env --backend[0]: the environment variable NONE is not set",
        "--api-key-env --backend[1]: the environment variable NONE is not set",
    )
    assert backends(Backend("http://h", api_key_env="NONE")).warnings[0].startswith("--api-key-env: ")


# --- whether a key is asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "required", "expected"),
    [
        ("127.0.0.1", "auto", False),
        ("127.8.8.8", "auto", False),
        ("localhost", "auto", False),
        ("::1", "auto", False),
        ("0.0.0.0", "auto", True),
        ("::", "auto", True),
        ("gateway.example.com", "auto", True),
        ("0.0.0.0", False, False),
        ("127.0.0.1", True, True),
    ],
)
def test_auth_required(host: str, required: bool, expected: bool) -> None:
    settings = Settings(server=ServerSettings(host=host), auth=AuthSettings(required))
    assert settings.auth_required is expected


OPEN = '[server]\nhost = "0.0.0.0"\n[auth]\nrequired = false\n'


def test_an_open_gateway_is_refused_unless_it_is_said_in_so_many_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, OPEN)
    assert caught.value.message.startswith("auth.required: anyone who reaches 0.0.0.0")
    assert "--allow-unauthenticated" in caught.value.message
    settings = load(tmp_path, OPEN + "allow_unauthenticated = true")
    assert not settings.auth_required
    (warning,) = settings.warnings
    assert warning.startswith("auth.required: anyone who reaches 0.0.0.0")


@pytest.mark.parametrize(("written", "required"), [("", False), ("[auth]\nrequired = true", True)])
def test_the_flag_opens_what_does_not_insist_on_keys(tmp_path: Path, written: str, required: bool) -> None:
    path = tmp_path / "strom.toml"
    path.write_text(written)
    overrides = Overrides(host="0.0.0.0", allow_unauthenticated=True)
    assert load_settings(path, overrides, {}).auth_required is required


def test_to_allow_it_is_not_to_demand_it(tmp_path: Path) -> None:
    settings = load(tmp_path, '[server]\nhost = "0.0.0.0"\n[auth]\nallow_unauthenticated = true')
    assert settings.auth_required


def test_limits_stand_for_all_for_models_and_for_keys(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        [limits]
        requests_per_minute = 600
        assumed_output_tokens = 500
        [[providers]]
        name = "p"
        base_url = "http://127.0.0.1:1"
        [[models]]
        name = "m"
        limits = { concurrent = 3 }
        [[models.endpoints]]
        provider = "p"
        """,
    )
    assert settings.limits.of_all == Limits(requests_per_minute=600)
    assert settings.limits.assumed_output_tokens == 500
    assert settings.models[0].limits == Limits(concurrent=3)


def test_a_key_has_routes_an_expiry_and_may_be_switched_off(tmp_path: Path) -> None:
    digest = "0" * 64
    text = f"""
        [[keys]]
        name = "old"
        key_sha256 = "{digest}"
        routes = ["/v1/embeddings"]
        may_pin_endpoint = true
        expires_at = 2026-12-01T00:00:00
        disabled = true
        """
    (key,) = load(tmp_path, text).keys
    assert (key.routes, key.may_pin_endpoint, key.disabled) == (("/v1/embeddings",), True, True)
    assert key.expires_at == datetime(2026, 12, 1, tzinfo=UTC).timestamp()


def test_the_password_of_a_redis_is_kept_out_of_logs() -> None:
    settings = load_settings(None, Overrides(), {"STROM_SHARED_URL": "redis://:swordfish%21@h:6379/1"})
    assert Secret("swordfish!") in settings.secrets
