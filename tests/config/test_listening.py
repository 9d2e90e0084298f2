"""[server]: TLS, ports and origins; and keys that lie in files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from strom.config.load import load_settings
from strom.config.secret_files import MAX_BYTES
from strom.config.settings import Overrides, Settings
from strom.core.errors import ConfigError
from strom.upstreams.settings import Secret


def load(tmp_path: Path, text: str, **flags: str) -> Settings:
    path = tmp_path / "strom.toml"
    path.write_text(text, "utf-8")
    return load_settings(path, Overrides(**flags), {})  # type: ignore[arg-type]


def errors(tmp_path: Path, text: str, **flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **flags)
    return caught.value.message.splitlines()


def secret(tmp_path: Path, text: str = "sk-in-a-file\n", mode: int = 0o600, name: str = "secret") -> Path:
    path = tmp_path / name
    path.write_text(text)
    path.chmod(mode)
    return path


def provider(path: Path, more: str = "") -> str:
    return f'[[providers]]\nname = "p"\nbase_url = "http://h"\napi_key_file = "{path}"\n{more}'


# -- keys in files


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_keys_out_of_closed_files(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path, mode=mode)
    settings = load(tmp_path, provider(path, f'[[keys]]\nname = "k"\nkey_file = "{path}"\n'))
    assert settings.providers["p"].api_key == Secret("sk-in-a-file")
    assert settings.keys[0].sha256 == hashlib.sha256(b"sk-in-a-file").hexdigest()
    assert Secret("sk-in-a-file") in settings.secrets


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o610, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path, mode=mode)
    (told,) = errors(tmp_path, provider(path))
    assert told.startswith("providers[0].api_key_file: ")
    assert f"(mode {mode:04o})" in told
    assert f"chmod 600 {path}" in told
    assert "sk-in-a-file" not in told
    (told,) = errors(tmp_path, f'[[keys]]\nname = "k"\nkey_file = "{path}"')
    assert told.startswith("keys[0].key_file: ")


def test_a_link_does_not_hide_an_open_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret(tmp_path, mode=0o644))
    assert "mode 0644" in errors(tmp_path, provider(link))[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("two words", "spaces"),
        ("x" * (MAX_BYTES + 1), "too large"),
        ("é", "spaces"),
    ],
)
def test_what_is_no_key(tmp_path: Path, text: str, told: str) -> None:
    (error,) = errors(tmp_path, provider(secret(tmp_path, text)))
    assert told in error


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in errors(tmp_path, provider(tmp_path / "none"))[0]
    assert "is no file" in errors(tmp_path, provider(tmp_path))[0]
    binary = secret(tmp_path)
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in errors(tmp_path, provider(binary))[0]


def test_one_place_for_a_key(tmp_path: Path) -> None:
    path = secret(tmp_path)
    assert errors(tmp_path, provider(path, 'api_key_env = "K"'))[0].endswith(
        "expected api_key_env or api_key_file, not both"
    )
    assert "exactly one of" in errors(tmp_path, f'[[keys]]\nname = "k"\nkey_file = "{path}"\nkey_env = "K"')[0]


# -- TLS


def test_flags_and_file_name_a_pair(tmp_path: Path) -> None:
    cert, key = secret(tmp_path, name="cert", mode=0o644), secret(tmp_path, name="key")
    table = f'[server.tls]\ncert_file = "{cert}"\nkey_file = "{key}"\n'
    assert load(tmp_path, table).server.tls.key_file == str(key)
    assert load(tmp_path, "", tls_cert=str(cert), tls_key=str(key)).server.tls.cert_file == str(cert)
    assert load(tmp_path, "").server.tls.cert_file is None


def test_half_a_pair_and_an_open_key(tmp_path: Path) -> None:
    cert, key = secret(tmp_path, name="cert"), secret(tmp_path, name="key", mode=0o640)
    assert errors(tmp_path, "", tls_cert=str(cert)) == [
        "server.tls.key_file: is missing: a certificate and its key belong together"
    ]
    assert errors(tmp_path, "", tls_key=str(key))[0].startswith("server.tls.cert_file: is missing")
    assert "mode 0640" in errors(tmp_path, "", tls_cert=str(cert), tls_key=str(key))[0]
    told = errors(tmp_path, "", tls_cert=str(tmp_path / "none"), tls_key=str(tmp_path / "none"))
    assert [line.split(":")[0] for line in told] == ["server.tls.cert_file", "server.tls.key_file"]


# -- ports and origins


def test_operators_elsewhere_make_a_key_needed(tmp_path: Path) -> None:
    """Where only one of two ports is on loopback, the gateway can be reached from elsewhere."""
    apart = load(tmp_path, "[server]\nadmin_port = 9000\n")
    assert apart.on_loopback
    assert not apart.auth_required
    key = '[[keys]]\nname = "k"\nkey_sha256 = "' + "0" * 64 + '"'
    open_to_others = load(tmp_path, f'[server]\nadmin_port = 9000\nadmin_host = "0.0.0.0"\n{key}')
    assert open_to_others.auth_required


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('admin_host = "127.0.0.1"', "server.admin_host: says nothing without admin_port"),
        ("admin_port = 8080", "server.admin_port: is the port of the gateway itself"),
        ('allowed_origins = ["app.example"]', "server.allowed_origins"),
        ('allowed_origins = ["https://app.example/path"]', "server.allowed_origins"),
        ("max_connections = 0", "server.max_connections"),
        ("max_active_calls = -1", "server.max_active_calls"),
        ("min_body_bytes_per_s = 0", "server.min_body_bytes_per_s"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, line: str, told: str) -> None:
    (error,) = errors(tmp_path, f"[server]\n{line}")
    assert error.startswith(told)


def test_every_origin_is_worth_a_warning(tmp_path: Path) -> None:
    settings = load(tmp_path, '[server]\nallowed_origins = ["*", "https://app.example"]')
    assert any(warning.startswith("server.allowed_origins") for warning in settings.warnings)
