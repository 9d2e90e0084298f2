"""A gateway with everything on: keys of both kinds, limits, a policy. After calls and questions of every kind and outcome, no
secret stands in any log line, metric, record, platform answer, error or file, and no text of a client beyond its call.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.processes import ROOT, Gateway, ask, gateway, upstream
from tests.patience import PATIENCE_S

ADMIN, WRONG, BEHIND = "adminkey-5up3rs3cret-01", "wrongkey-5up3rs3cret-02", "upstream-5up3rs3cret-03"
TEXT = "PROMPTSENTINEL"
ORDERS = ("n=2 end=proof", "n=2 end=error", "n=1 end=cut", "refuse=400", "refuse=401", "refuse=429", "refuse=500")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
CONFIG = """
[server]
log_format = "json"
[auth]
required = true
[limits]
concurrent = 50
[store]
keep_peer = true
[[providers]]
name = "p"
base_url = "http://127.0.0.1:PORT"
api_key_env = "BEHIND"
region = "eu-de"
retention = "none"
[[models]]
name = "m"
[[models.endpoints]]
id = "e1"
provider = "p"
price = { input = 0.2, output = 0.6, currency = "EUR" }
[[policies]]
id = "keeps-nothing"
regions = ["eu-*"]
retentions = ["none"]
[[policies]]
id = "moon"
regions = ["moon"]
[[keys]]
name = "static"
key_env = "ADMIN"
admin = true
policy = "keeps-nothing"
"""


class Scan:
    """`seen`: everything the gateway said, by where; `secrets`: what must stand nowhere in it."""

    def __init__(self, running: Gateway) -> None:
        self.seen: dict[str, bytes] = {}
        self.secrets = [ADMIN, WRONG, BEHIND]
        self._running = running
        self._client = httpx.Client(base_url=running.url, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, key: str = ADMIN, **more: Any) -> httpx.Response:
        answer = self._client.request(method, path, headers={"authorization": f"Bearer {key}"}, **more)
        self.seen[f"{len(self.seen)} {method} {path}"] = answer.content + repr(answer.headers.raw).encode()
        return answer

    def make(self, name: str, **scopes: Any) -> str:
        """A managed key; the one answer that may show its secret is not scanned."""
        return self._secret("/platform/v1/keys", {"name": name, **scopes})

    def rotate(self, name: str) -> str:
        return self._secret(f"/platform/v1/keys/{name}/rotate", {"overlap_s": 0})

    def call(self, path: str, text: str, key: str) -> httpx.Response:
        body = ask(text)
        if path == "/v1/responses":
            body = {"model": "m", "stream": True, "input": text, "store": True}
        return self.ask("POST", path, key, json=body)

    def command(self, *arguments: str) -> None:
        """The same questions on the command line."""
        done = subprocess.run(
            [sys.executable, "-m", "strom", *arguments, "--url", self._running.url, "--api-key-env", "ADMIN"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "ADMIN": ADMIN},
            capture_output=True,
            timeout=60,
            check=False,
        )
        self.seen[f"strom {' '.join(arguments[:2])}"] = done.stdout + done.stderr

    def _secret(self, path: str, body: dict[str, Any]) -> str:
        answer = self._client.post(path, json=body, headers={"authorization": f"Bearer {ADMIN}"})
        secret: str = answer.json()["secret"]
        self.secrets.append(secret.rpartition("-")[2])
        return secret


def test_no_secret_anywhere_and_no_text_beyond_its_call(tmp_path: Path) -> None:
    with upstream() as behind:
        (tmp_path / "strom.toml").write_text(CONFIG.replace("PORT", str(behind.port)))
        arguments = ("--config", "strom.toml", "--log-level", "debug")
        with gateway(tmp_path, *arguments, ADMIN=ADMIN, BEHIND=BEHIND) as running:
            scan = Scan(running)
            call_everything(scan)
            secrets = ask_everything(scan)
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
        assert any(BEHIND in head for head, _ in behind.requests)
        assert not any(key in head or key.encode() in body for head, body in behind.requests for key in secrets[:2])
    kept = {
        path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "strom.toml"
    }
    assert b"rejected" in b"".join(kept.values())
    assert [(name, found) for name, found in findings({**scan.seen, **kept}, scan.secrets)] == []
    told = {
        name: text for name, text in scan.seen.items() if "/platform/" in name or "metrics" in name or "strom" in name
    }
    assert list(findings({**told, **kept}, [TEXT])) == []
    assert all(text for name, text in told.items() if name.startswith("strom "))
    assert list(findings(scan.seen, [TEXT])), "the calls were not seen at all"


def call_everything(scan: Scan) -> None:
    """Every protocol and outcome; then with keys that may not, in every way."""
    free = scan.make("free", policy="keeps-nothing")
    for path in PATHS:
        for order in ORDERS:
            scan.call(path, f"{TEXT} {order}", free)
    slow, barred = scan.make("slow", limits={"requests_per_minute": 1}), scan.make("barred", policy="moon")
    assert [scan.call(PATHS[0], f"{TEXT} n=1 end=proof", slow).status_code for _ in range(2)] == [200, 429]
    assert scan.call(PATHS[1], TEXT, barred).status_code == 403
    assert scan.call(PATHS[0], TEXT, WRONG).status_code == 401
    assert scan.call(PATHS[0], TEXT, scan.make("elsewhere", models=["x"])).status_code == 403
    old = scan.make("old")
    scan.rotate("old")
    assert scan.call(PATHS[0], TEXT, old).status_code == 401
    gone = scan.make("gone")
    scan.ask("POST", "/platform/v1/keys/gone/disable")
    assert scan.call(PATHS[2], TEXT, gone).status_code == 401
    assert scan.ask("DELETE", f"/platform/v1/keys/{gone}").status_code == 200  # pasted whole
    assert scan.call(PATHS[3], TEXT, gone).status_code == 401
    scan.ask("POST", PATHS[0], free, content=b'{"model": "m", "messages": "' + TEXT.encode())
    scan.ask("POST", "/v1/embeddings", free, json={"model": "m", "input": TEXT})
    scan.ask("POST", "/v1/messages/count_tokens", free, json=ask(TEXT))


def ask_everything(scan: Scan) -> list[str]:
    """The operators' paths, with sense and without; the secrets so far."""
    for page in ("traces?limit=1000", "usage", "limits", "endpoints", "keys", "openapi.json"):
        assert scan.ask("GET", f"/platform/v1/{page}").status_code == 200
    managed = f"sk-strom-aaaaaaaaaa-{scan.secrets[3]}"
    for path in (f"keys/{managed}", f"policies/explain?model=m&key={managed}", f"traces/{TEXT}x", f"keys?{TEXT}=1"):
        assert scan.ask("GET", f"/platform/v1/{path}".replace(TEXT, "none")).status_code in (400, 404)
    scan.ask("POST", "/platform/v1/keys", json={"name": "x", "key": ADMIN})
    scan.ask("POST", "/platform/v1/keys", json={"name": "x", "policy": 5, "secret": scan.secrets[3]})
    scan.ask("GET", "/platform/v1/traces", WRONG)
    scan.ask("GET", "/metrics")
    for words in (
        ["keys", "list"],
        ["keys", "show", managed],
        ["traces", "list"],
        ["usage"],
        ["policy", "explain", "m"],
    ):
        scan.command(*words, "--json")
    return scan.secrets


def findings(where: dict[str, bytes], secrets: list[str]) -> Iterator[tuple[str, str]]:
    return ((name, secret) for name, text in where.items() for secret in secrets if secret.encode() in text)
