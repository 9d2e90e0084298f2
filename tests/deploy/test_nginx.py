"""The sites of deploy/ in a real nginx: they are valid, stream at once, and pass over what is dead."""

from __future__ import annotations

import json
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest
import trustme

from tests.deploy.sites import Site
from tests.e2e.processes import ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

SITES = ("deploy/nginx/strom.conf", "deploy/compose/nginx.conf")
GAP_S = 0.3


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    issued = trustme.CA().issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return chain, key


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def client(site: Site) -> httpx.Client:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return httpx.Client(base_url=site.url, verify=context, timeout=PATIENCE_S)


@pytest.mark.parametrize("file", SITES)
def test_streams_through_it(file: str, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    tls = certificate if "ssl_certificate" in Path(__file__).parents[2].joinpath(file).read_text() else None
    with upstream() as backend, gateway(tmp_path, "--backend", f"http://127.0.0.1:{backend.port}") as running:
        servers = [f"127.0.0.1:{unused_port()}", running.url.removeprefix("http://")]  # the first one is dead
        with Site(tmp_path, file, servers, certificate=tls) as site, client(site) as through:
            assert "warn" not in site.check()
            began, times = time.monotonic(), []
            with through.stream("POST", "/v1/messages?beta=true", json=ask(f"n=4 gap={GAP_S}")) as answer:
                assert answer.status_code == 200
                assert answer.headers["x-accel-buffering"] == "no"
                assert "content-encoding" not in answer.headers
                for piece in answer.iter_raw():
                    times += [time.monotonic() - began] * piece.count(b"content_block_delta\n")
            assert len(times) == 4
            assert times[-1] - times[0] > GAP_S  # each when it was made, not all at the end
            big = through.post("/v1/chat/completions", content=b'{"model": "' + b"x" * 33_600_000 + b'"}')
            assert big.status_code == 413
            assert json.loads(big.content)["error"]["message"]  # Strom's words, in the caller's protocol
            for _ in range(6):
                assert through.post("/v1/chat/completions", json=ask("n=1")).status_code == 200
            _leave(through, backend.port)
            wait_until(lambda: not backend.open, told=lambda: "the call goes on without its client")


def _leave(through: httpx.Client, _: int) -> None:
    with through.stream("POST", "/v1/chat/completions", json=ask("n=1 end=hang")) as answer:
        next(answer.iter_raw())
