"""No key, no password and no text of a client stands in any table, file or log, whichever database keeps the store."""

from __future__ import annotations

import base64
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from strom.stores.table import dialect_of
from strom.stores.urls import parse_store_url
from tests.e2e.processes import Gateway, ask, gateway, upstream
from tests.patience import PATIENCE_S
from tests.services import PASSWORD

CLIENT_KEY = "client-key-0123456789abcdef"
WRONG_KEY = "wrong-key-0123456789abcdef"
PROVIDER_KEY = "provider-key-0123456789abcdef"
CONTENT_KEY = base64.b64encode(bytes(range(100, 132))).decode()
SENTINEL = "SENTINELTEXT of the client"

CONFIG = """
[auth]
required = true
[store]
encryption_key_env = "CONTENT_KEY"
journal_dir = "{journals}"
keep_peer = true
[[providers]]
name = "p"
base_url = "http://127.0.0.1:{port}/"
api_key_env = "PROVIDER_KEY"
[[keys]]
name = "ci"
key_env = "CLIENT_KEY"
admin = true
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'strom.db'}"
    found: str = request.getfixturevalue("postgres_database")
    return found


def test_no_secret_and_no_text_is_kept_in_the_clear(url: str, tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    variables = {"CLIENT_KEY": CLIENT_KEY, "PROVIDER_KEY": PROVIDER_KEY, "CONTENT_KEY": CONTENT_KEY}
    with upstream() as behind:
        file.write_text(CONFIG.format(port=behind.port, journals=tmp_path / "journals"))
        arguments = ["--config", str(file), "--log-level", "debug"]
        with gateway(tmp_path, *arguments, STROM_STORE_URL=url, **variables) as running:
            answers = use(running)
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
            assert PROVIDER_KEY.encode() in b"".join(head.encode() for head, _ in behind.requests)
    kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != file}
    kept |= tables(url)
    assert b"completed" in kept["table calls"]
    assert b"keyed" in kept["table keys"]
    assert len(kept["table responses"]) > 100
    secrets = [CLIENT_KEY, WRONG_KEY, PROVIDER_KEY, CONTENT_KEY, PASSWORD, SENTINEL, answers["managed"]]
    found = [(name, secret) for name, content in kept.items() for secret in secrets if secret.encode() in content]
    assert found == []
    assert not any(key in answers["text"] for key in (CLIENT_KEY, WRONG_KEY, PROVIDER_KEY, CONTENT_KEY, PASSWORD))


def use(running: Gateway) -> dict[str, str]:
    """Calls that store, that fail, that come with a wrong key; a key made; the operator's pages."""
    text = ""
    headers = {"authorization": f"Bearer {CLIENT_KEY}"}
    with httpx.Client(base_url=running.url, headers=headers, timeout=PATIENCE_S) as client:
        made = client.post("/platform/v1/keys", json={"name": "keyed"}).json()
        for order in ("n=2 end=proof", "n=2 end=error", "n=1 end=cut", "refuse=500"):
            body: dict[str, Any] = {"model": "m", "input": f"{SENTINEL} {order}", "stream": True}
            text += client.post("/v1/responses", json=body).text
            text += client.post("/v1/responses", json={**body, "background": True}).text
            text += client.post("/v1/chat/completions", json=ask(f"{SENTINEL} {order}")).text
        text += httpx.post(
            f"{running.url}/v1/messages", json=ask(SENTINEL), headers={"x-api-key": WRONG_KEY}, timeout=PATIENCE_S
        ).text
        for page in ("traces", "usage", "keys", "endpoints"):
            text += client.get(f"/platform/v1/{page}").text
    return {"text": text, "managed": secret_of(made)}


def secret_of(made: dict[str, Any]) -> str:
    """The new key, wherever it stands in the answer."""
    flat = [*made.values(), *(value for inner in made.values() if isinstance(inner, dict) for value in inner.values())]
    return next(value for value in flat if isinstance(value, str) and value.startswith("sk-strom-") and len(value) > 40)


def tables(url: str) -> dict[str, bytes]:
    """Every table, row by row."""
    connection = dialect_of(parse_store_url(url)).connect_reading()
    dialect = dialect_of(parse_store_url(url))
    found = {}
    for table in dialect.tables(connection):
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        cells = [cell for row in rows for cell in row]
        found[f"table {table}"] = b"\n".join(
            bytes(cell) if isinstance(cell, bytes | memoryview) else str(cell).encode() for cell in cells
        )
    connection.close()
    return found
