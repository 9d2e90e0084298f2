"""After every kind of call and mishap, no key and no message text stands where it must not."""

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import ask, gateway, upstream
from tests.patience import PATIENCE_S

CLIENT_KEY = "client-key-0123456789abcdef"
WRONG_KEY = "wrong-key-0123456789abcdef"
PROVIDER_KEY = "provider/key+0123456789abcdef"
SECRET = "SECRETTEXT of the client"
ORDERS = ("n=2 end=proof", "n=2 end=error", "n=1 end=cut", "refuse=401", "refuse=400", "refuse=500", "refuse=429")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/v1/messages/count_tokens")

CONFIG = """
[auth]
required = true
[[providers]]
name = "p"
protocol = "{protocol}"
base_url = "http://127.0.0.1:{port}"
api_key_env = "PROVIDER_KEY"
[[keys]]
name = "ci"
key_env = "CLIENT_KEY"
admin = true
"""


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
def test_no_key_and_no_text_is_left_anywhere(protocol: str, tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    with upstream() as behind:
        file.write_text(CONFIG.format(protocol=protocol, port=behind.port))
        arguments = ["--config", str(file), "--log-level", "debug"]
        with gateway(tmp_path, *arguments, CLIENT_KEY=CLIENT_KEY, PROVIDER_KEY=PROVIDER_KEY) as running:
            answers = [call(running.url, path, f"{SECRET} {order}") for path in PATHS for order in ORDERS]
            refused = httpx.post(
                running.url + PATHS[0], json=ask(SECRET), headers={"x-api-key": WRONG_KEY}, timeout=PATIENCE_S
            )
            assert refused.status_code == 401
            headers = {"authorization": f"Bearer {CLIENT_KEY}"}
            traces = httpx.get(
                running.url + "/platform/v1/traces?limit=500", headers=headers, timeout=PATIENCE_S
            ).content
            assert httpx.get(running.url + "/platform/v1/traces", timeout=PATIENCE_S).status_code == 401
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
        check_sent(behind.requests)
        kept = traces + running.log.read_bytes()
        stored = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != file.name]
        kept += b"".join(path.read_bytes() for path in stored)
        assert b"SECRETTEXT" not in kept
        for key in (CLIENT_KEY, WRONG_KEY, PROVIDER_KEY):
            assert key.encode() not in kept
            assert all(key.encode() not in answer for answer in [*answers, refused.content])
        assert len(json.loads(traces)["data"]) == (len(PATHS) - 1) * len(ORDERS) + 1


def call(url: str, path: str, text: str) -> bytes:
    headers = {"authorization": f"Bearer {CLIENT_KEY}", "x-api-key": CLIENT_KEY, "cookie": f"session={CLIENT_KEY}"}
    body = ask(text)
    if path == "/v1/responses":
        body = {"model": "m", "stream": True, "input": text, "store": False}
    elif path.endswith("count_tokens"):
        del body["stream"]
    answer = httpx.post(url + path, json=body, headers=headers, timeout=PATIENCE_S)
    return answer.content + repr(answer.headers.raw).encode()


def check_sent(requests: list[tuple[str, bytes]]) -> None:
    assert requests
    for head, body in requests:
        assert CLIENT_KEY not in head
        assert CLIENT_KEY.encode() not in body
        assert PROVIDER_KEY in head
