"""What a file may say about limits, prices, scopes and where state is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.config.load import load_settings
from strom.config.settings import Overrides
from strom.core.errors import ConfigError

KEY = f'[[keys]]\nname = "k"\nkey_sha256 = "{"0" * 64}"\n'
PROVIDER = '[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:1"\n'
MODEL = PROVIDER + '[[models]]\nname = "m"\n[[models.endpoints]]\nprovider = "p"\n'
EMPTY = "expected a list of patterns, not an empty one: leave it out for no restriction"
REDIS = "shared.url: expected memory://, redis://HOST:PORT/DATABASE or rediss://… (with TLS)"


def errors(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    (folder / "strom.toml").write_text(text)
    try:
        load_settings(folder / "strom.toml", Overrides(), environ or {})
    except ConfigError as error:
        return error.message.splitlines()
    return []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # beyond these, 64 bits overflow in the buckets that workers share
        (
            KEY + "limits = { requests_per_minute = 99999999999999999999 }",
            "keys[0].limits.requests_per_minute: expected int <= 1000000000000000000",
        ),
        (
            KEY + "limits = { tokens_per_minute = 2000000000000000000 }",
            "keys[0].limits.tokens_per_minute: expected int <= 1000000000000000000",
        ),
        ("[limits]\nconcurrent = 9999999999999999999", "limits.concurrent: expected int <= 1000000000000000000"),
        (
            KEY + 'limits = { budget = { amount = 1e300, currency = "EUR" } }',
            "keys[0].limits.budget.amount: expected number <= 1000000000.0",
        ),
        # an empty list could be read as "nothing" or as "everything"
        (KEY + "models = []", f"keys[0].models: {EMPTY}"),
        (KEY + "routes = []", f"keys[0].routes: {EMPTY}"),
        ('[[policies]]\nid = "p"\nregions = []', f"policies[0].regions: {EMPTY}"),
        (
            MODEL + 'price = { input = 1, output = 1, currency = "EUR", valid_from = 2026-02-01, valid_until = 2026-01-31 }',
            "models[0].endpoints[0].price.valid_until: is before valid_from: the price would never hold",
        ),
        (
            MODEL + 'price = [{ input = 1, output = 1, currency = "EUR" }, '
            '{ input = 1, output = 1, currency = "EUR", valid_from = 2026-02-01, valid_until = 2026-01-31 }]',
            "models[0].endpoints[0].price[1].valid_until: is before valid_from: the price would never hold",
        ),
    ],
)  # fmt: skip
def test_what_cannot_have_been_meant_is_refused(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text) == [error]


def test_a_price_may_hold_for_one_day(tmp_path: Path) -> None:
    price = 'price = { input = 1, output = 1, currency = "EUR", valid_from = 2026-02-01, valid_until = 2026-02-01 }'
    assert errors(tmp_path, MODEL + price) == []


@pytest.mark.parametrize(
    "url", ["redis://:swordfish@h:port/0", "redis://:swordfish@h:1/name", "redis://h:0", "rediss://[h/0"]
)
def test_a_redis_that_cannot_be_meant_is_refused_before_anything_starts(tmp_path: Path, url: str) -> None:
    assert errors(tmp_path, "", {"STROM_SHARED_URL": url}) == [REDIS]


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://h:6379/", "redis://user:p%40ss@h:6379/15", "rediss://h/2?ssl_cert_reqs=none"]
)
def test_what_leads_to_a_redis(tmp_path: Path, url: str) -> None:
    assert errors(tmp_path, "", {"STROM_SHARED_URL": url}) == []


def test_a_password_with_an_at_sign_is_not_taken_for_a_host(tmp_path: Path) -> None:
    """The driver's error would say that it cannot find the host `fish@h`."""
    found = errors(tmp_path, "", {"STROM_STORE_URL": "postgresql://u:sword@fish@h/db"})
    assert found == ["store.url: in a user or a password of the store's URL, @ is written %40"]
    assert errors(tmp_path, "", {"STROM_STORE_URL": "postgresql://u:sword%40fish@h/db"}) == []
