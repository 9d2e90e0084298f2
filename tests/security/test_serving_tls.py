"""`strom serve` over TLS, as a process: it says https, reloads on SIGHUP, and refuses a key that others may read."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import trustme

from tests.e2e.processes import Gateway, ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

AUTHORITY = trustme.CA()


def issue(folder: Path, *names: str) -> list[str]:
    issued = AUTHORITY.issue_cert("localhost", "127.0.0.1", *names)
    key, cert = folder / "key.pem", folder / "cert.pem"
    key.touch(0o600)
    key.write_bytes(issued.private_key_pem.bytes())
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ["--tls-cert", str(cert), "--tls-key", str(key)]


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def names_at(url: str) -> set[str]:
    port = int(url.rpartition(":")[2])
    raw = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    with trusting().wrap_socket(raw, server_hostname="localhost") as wrapped:
        found = wrapped.getpeercert()
    assert found is not None
    return {str(entry[1]) for entry in found["subjectAltName"]}


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S).status_code == 200
    except httpx.TransportError:
        return False


def wait_for_word(running: Gateway, word: str, times: int = 1) -> str:
    wait_until(lambda: running.log.read_text().count(word) >= times, told=running.log.read_text)
    return running.log.read_text()


def test_a_stream_over_tls_and_a_new_certificate(tmp_path: Path) -> None:
    flags, workers = issue(tmp_path), 2
    with upstream() as behind:
        backend = ["--backend", f"http://127.0.0.1:{behind.port}", "--workers", str(workers)]
        with gateway(tmp_path, *backend, *flags, STROM_STORE_URL="memory://") as running:
            assert running.url.startswith("https://127.0.0.1:")
            with httpx.Client(verify=trusting(), timeout=PATIENCE_S) as client:
                with client.stream("POST", f"{running.url}/v1/chat/completions", json=ask("n=3 hi")) as answer:
                    assert answer.status_code == 200
                    assert b"".join(answer.iter_raw()).rstrip().endswith(b"data: [DONE]")
                assert "new.test" not in names_at(running.url)
                issue(tmp_path, "new.test")
                running.signal(signal.SIGHUP)
                wait_for_word(running, "Configuration reloaded.", workers)
                assert {"new.test"} <= names_at(running.url)
                (tmp_path / "key.pem").write_bytes(b"no key")
                running.signal(signal.SIGHUP)
                assert "no certificate with its key" in wait_for_word(running, "was refused", workers)
                assert {"new.test"} <= names_at(running.url)
                (tmp_path / "key.pem").chmod(0o644)
                running.signal(signal.SIGHUP)
                assert "chmod 600" in wait_for_word(running, "was refused", workers + 1)
                # The connection from before all that still serves.
                assert client.get(f"{running.url}/healthz").status_code == 200


def test_a_key_that_others_may_read_is_refused_at_the_start(tmp_path: Path) -> None:
    flags = issue(tmp_path)
    (tmp_path / "key.pem").chmod(0o640)
    refused = Gateway(tmp_path, ["--port", "0", "--backend", "http://127.0.0.1:9", *flags], {})
    try:
        assert refused.wait() not in (0, None)
        told = refused.log.read_text()
        assert re.search(r"server\.tls\.key_file: .*mode 0640.*chmod 600", told), told
        assert "Traceback" not in told
    finally:
        refused.end()


def test_operators_have_a_port_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    file.write_text('[server]\nadmin_port = 0\n[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:9"\n')
    with gateway(tmp_path, "--config", str(file), "--workers", "2", STROM_STORE_URL="memory://") as running:
        assert running.process.stdout is not None
        line = running.process.stdout.readline().decode()
        found = re.search(r"operators: (http://127\.0\.0\.1:\d+)", line)
        assert found, line
        asked = {f"{running.url}/platform/v1/traces": 404, f"{running.url}/metrics": 404}
        asked |= {f"{found[1]}/platform/v1/traces": 200, f"{found[1]}/v1/models": 404}
        # Each on a connection of its own, so that each of the workers answers some.
        with httpx.Client(headers={"connection": "close"}, timeout=PATIENCE_S) as client:
            for _ in range(8):
                assert {url: client.get(url).status_code for url in asked} == asked
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_files_are_plentiful_enough_or_it_is_said(tmp_path: Path) -> None:
    """With fewer descriptors than connections, the limit on connections is what gives way, with a word."""
    command = 'export STROM_STORE_URL=memory://; ulimit -n 400; exec "$0" -m strom serve --port 0 --backend http://127.0.0.1:9'
    running = subprocess.Popen(
        ["bash", "-c", command, sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert running.stdout is not None
        line = running.stdout.readline().decode()
        place = ("127.0.0.1", int(line.strip().rpartition(":")[2]))
        held = [socket.create_connection(place) for _ in range(150)]
        told = held[-1].recv(1000)
        assert told.startswith(b"HTTP/1.1 503 ")
        for one in held:
            one.close()
        wait_until(lambda: healthy(place[1]))
    finally:
        running.terminate()
        _, told_at_the_end = running.communicate(timeout=PATIENCE_S)
    assert b"room for 72 connections" in told_at_the_end
