"""Schemathesis asks a running gateway whatever its own OpenAPI document allows, and what it does not.

Left out, with reasons in docs/decisions/0022-platform-api-from-one-table.md: `use_after_free` (a revoked key is still shown),
and `ignored_auth` where there is a key (tests/server/test_platform_requests.py tries every operation with wrong ones).
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import ROOT, Gateway, ask, gateway, upstream
from tests.e2e.schemathesis_formats import POLICY
from tests.patience import PATIENCE_S

KEY = "boss-0123456789abcdef"
DOCUMENT = "/platform/v1/openapi.json"
RUN = "from schemathesis.cli import schemathesis; schemathesis()"
CONFIG = f"""
[auth]
required = true
[limits]
concurrent = 50
[[providers]]
name = "p"
base_url = "http://127.0.0.1:PORT"
region = "eu-de"
[[models]]
name = "m"
limits = {{ requests_per_minute = 1000 }}
[[models.endpoints]]
id = "e1"
provider = "p"
model = "real"
price = {{ input = 0.2, output = 0.6, currency = "EUR" }}
[[policies]]
id = "{POLICY}"
regions = ["eu-*"]
[[keys]]
name = "boss"
key_env = "BOSS"
admin = true
policy = "{POLICY}"
limits = {{ tokens_per_minute = 100000, budget = {{ amount = 20, currency = "EUR", per = "month" }} }}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """After calls that ended in several ways, so that there is something to show."""
    folder = tmp_path_factory.mktemp("gateway")
    with upstream() as behind:
        (folder / "strom.toml").write_text(CONFIG.replace("PORT", str(behind.port)))
        with gateway(folder, "--config", "strom.toml", BOSS=KEY) as found:
            for order in ("end=proof", "end=error", "end=cut", "refuse=500"):
                httpx.post(
                    found.url + "/v1/chat/completions", json=ask(f"n=2 {order}"), headers=bearer(), timeout=PATIENCE_S
                )
            httpx.post(found.url + "/v1/chat/completions", json={"model": "none"}, headers=bearer(), timeout=PATIENCE_S)
            yield found


def bearer() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}


def examine(running: Gateway, folder: Path, *options: str) -> str:
    """What Schemathesis says; it found nothing."""
    document = folder / "openapi.json"
    document.write_bytes(httpx.get(running.url + DOCUMENT, headers=bearer(), timeout=PATIENCE_S).content)
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.e2e.schemathesis_formats", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, "run", str(document), "--url", running.url, "--seed", "1", "--checks", "all"]
    shown = subprocess.run(
        [*command, "--no-color", "--suppress-health-check", "all", "--continue-on-failure", *options],
        check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


def test_it_finds_nothing_with_an_admin_key(running: Gateway, tmp_path: Path) -> None:
    left_out = ("--exclude-checks", "use_after_free,ignored_auth")
    said = examine(running, tmp_path, *left_out, "--max-examples", "2", "-H", f"Authorization: Bearer {KEY}")
    assert int(re.findall(r"(\d+) generated", said)[0]) > 600
    assert KEY.encode() not in running.log.read_bytes()


def test_it_finds_nothing_without_a_key(running: Gateway, tmp_path: Path) -> None:
    keys = running.url + "/platform/v1/keys?limit=1000"
    before = httpx.get(keys, headers=bearer(), timeout=PATIENCE_S).json()
    examine(running, tmp_path, "--max-examples", "3", "--phases", "fuzzing")
    assert httpx.get(keys, headers=bearer(), timeout=PATIENCE_S).json() == before


def test_a_body_beyond_the_limit_is_a_problem(running: Gateway) -> None:
    host, _, port = running.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        head = f"POST /platform/v1/keys HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 10000000000\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"content-type: application/problem+json" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "request_too_large"
