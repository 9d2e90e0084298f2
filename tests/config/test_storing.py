"""`[store]`: its URL without passwords, its keys, its other wishes."""

from __future__ import annotations

import base64
from datetime import date
from pathlib import Path

import pytest

from strom.app import store_options
from strom.config.load import load_settings
from strom.config.settings import Overrides, Settings
from strom.core.errors import ConfigError
from strom.stores.sealing import key_id
from strom.upstreams.settings import Price

KEY, OLD = bytes(range(32)), bytes(range(1, 33))


def load(tmp_path: Path, table: str, **environ: str) -> Settings:
    path = tmp_path / "strom.toml"
    path.write_text(f"[store]\n{table}")
    return load_settings(path, Overrides(), environ)


def test_the_table_becomes_what_the_store_is_told(tmp_path: Path) -> None:
    text = 'url = "memory://"\nretention_days = 30\njournal_dir = "/j"\nauto_upgrade = true\nkeep_peer = true\n'
    text += 'encryption_key_env = "NEW"\nold_encryption_key_envs = ["OLD"]\n'
    settings = load(tmp_path, text, NEW=base64.b64encode(KEY).decode(), OLD=OLD.hex())
    options = store_options(settings)
    assert (options.retention_days, options.journal_dir, options.auto_upgrade) == (30, Path("/j"), True)
    assert options.sealing is not None
    assert options.sealing.key_id == key_id(KEY)
    sealed = options.sealing.seal(b"text", ("a",))
    assert options.sealing.open(sealed, key_id(KEY), ("a",)) == b"text"
    assert settings.store.keep_peer
    assert {key.reveal() for key in settings.store_keys} <= {secret.reveal() for secret in settings.secrets}


def test_a_key_may_stand_in_a_closed_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY.hex() + "\n")
    file.chmod(0o600)
    settings = load(tmp_path, f'encryption_key_file = "{file}"')
    assert [key.reveal() for key in settings.store_keys] == [KEY.hex()]


def test_without_a_key_nothing_is_sealed(tmp_path: Path) -> None:
    assert store_options(load(tmp_path, "")).sealing is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('url = "postgresql://anna:geheim@host/db"', "a password never stands in the file"),
        ('url = "postgresql://host/db?password=geheim"', "a password never stands in the file"),
        ('encryption_key_env = "SHORT"', "expected 32 random bytes"),
        ('encryption_key_env = "NONE"', "NONE is not set"),
        ('old_encryption_key_envs = ["GOOD"]', "stand beside a current one"),
        ('encryption_key_env = "GOOD"\nencryption_key_file = "x"', "one of encryption_key_env and encryption_key_file"),
        ("retention_days = 0", "store.retention_days"),
    ],
)
def test_what_is_refused(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, table, SHORT="geheim", GOOD=KEY.hex())
    assert words in caught.value.message
    assert "geheim" not in caught.value.message


def test_a_password_may_come_with_the_variable_and_is_known_as_a_secret(tmp_path: Path) -> None:
    settings = load(tmp_path, "", STROM_STORE_URL="postgresql://anna:geheim@host/db")
    assert settings.store_url == "postgresql://anna:geheim@host/db"
    assert "geheim" in {secret.reveal() for secret in settings.secrets}


PRICED = """
[[providers]]
name = "p"
base_url = "http://127.0.0.1:1"
[[models]]
name = "m"
[[models.endpoints]]
provider = "p"
"""


def test_prices_may_change_with_the_days(tmp_path: Path) -> None:
    path = tmp_path / "strom.toml"
    path.write_text(
        f"""{PRICED}
price = [
  {{ input = 0.2, output = 0.6, currency = "EUR", valid_until = 2026-06-30 }},
  {{ input = 0.1, output = 0.5, currency = "EUR", cached_input = 0.01, valid_from = 2026-07-01 }},
]"""
    )
    prices = load_settings(path, Overrides(), {}).models[0].endpoints[0].price
    assert prices == (
        Price(0.2, 0.6, "EUR", valid_until=date(2026, 6, 30)),
        Price(0.1, 0.5, "EUR", cached_input=0.01, valid_from=date(2026, 7, 1)),
    )


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ('[{ input = 1, currency = "EUR" }]', "models[0].endpoints[0].price[0].output: is missing"),
        ('{ input = 1, output = 1, currency = "EUR", cached = 1 }', "price.cached: unknown key"),
        ('{ input = 1, output = 1, currency = "EUR", valid_from = "soon" }', "price.valid_from"),
        ("[3]", "price[0]: expected a table"),
    ],
)
def test_prices_that_are_none(tmp_path: Path, price: str, words: str) -> None:
    path = tmp_path / "strom.toml"
    path.write_text(f"{PRICED}\nprice = {price}")
    with pytest.raises(ConfigError) as caught:
        load_settings(path, Overrides(), {})
    assert words in caught.value.message
