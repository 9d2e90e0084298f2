"""What keeps several workers running: exchanged without a refused connection, restarted with what holds, ended in bounds."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found through /proc")


@pytest.fixture
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def children(running: Gateway) -> set[int]:
    own = running.process.pid
    return {int(word) for word in Path(f"/proc/{own}/task/{own}/children").read_text().split()}


class File:
    """A configuration file; `say` writes it anew."""

    def __init__(self, folder: Path, port: int) -> None:
        self.path = folder / "strom.toml"
        self._port = port
        self.say()

    def say(self, server: str = "", provider: str = "p", store: str = "") -> None:
        self.path.write_text(
            f'[server]\nworkers = 2\nshutdown_grace_s = 1\n{server}\n[store]\nurl = "sqlite:///strom.db"\n{store}\n'
            f'[[providers]]\nname = "{provider}"\nbase_url = "http://127.0.0.1:{self._port}"\n'
        )


class Knocking:
    """New connections, one after the other, each with a question, until `stop`; `failed` says which got no answer."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = (host, int(port))
        self._ended = threading.Event()
        self.answered = 0
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with socket.create_connection(self._address, timeout=PATIENCE_S) as knock:
                    knock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    if b"200" not in knock.recv(1000):
                        self.failed.append("no answer")
                self.answered += 1
            except OSError as error:
                self.failed.append(str(error))
            time.sleep(0.002)

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def test_workers_are_exchanged_without_a_refused_connection_or_a_cut_stream(behind: Upstream, tmp_path: Path) -> None:
    file = File(tmp_path, behind.port)
    with gateway(tmp_path, "--config", str(file.path)) as running:
        wait_until(lambda: len(children(running)) == 2)
        before, body = children(running), b""
        knocking = Knocking(running.url)
        with httpx.stream("POST", running.url + CHAT, json=ask("n=40 gap=0.1"), timeout=PATIENCE_S) as response:
            for piece in response.iter_raw():
                if not body:
                    file.say("keep_alive_s = 7")
                    running.signal(signal.SIGHUP)
                body += piece
        wait_until(lambda: "Every worker was replaced" in running.log.read_text())
        assert body.rstrip().endswith(b"data: [DONE]")  # 4 s, while a stop of the whole would have cut after one
        wait_until(lambda: len(children(running)) == 2 and not children(running) & before)
        knocking.stop()
        assert not knocking.failed
        assert knocking.answered > 50
        assert "server.keep_alive_s" in running.log.read_text()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "Traceback" not in running.log.read_text()


def test_a_worker_started_later_has_the_settings_that_hold_now(behind: Upstream, tmp_path: Path) -> None:
    file = File(tmp_path, behind.port)
    with gateway(tmp_path, "--config", str(file.path)) as running:
        wait_until(lambda: len(children(running)) == 2)
        before = children(running)
        file.say(provider="q")
        running.signal(signal.SIGHUP)
        wait_until(lambda: running.log.read_text().count("Configuration reloaded") == 2)
        assert children(running) == before  # nothing in it needs new processes
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(children(running)) == 2 and not children(running) & before)
        for _ in range(6):
            assert b'"provider":"q"' in httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).content
        file.say("prot = 1")
        running.signal(signal.SIGHUP)
        wait_until(lambda: "was refused, the old one stays" in running.log.read_text())
        assert running.log.read_text().count("was refused") == 1  # said by one for all


def test_settings_with_which_no_worker_starts_are_refused(behind: Upstream, tmp_path: Path) -> None:
    file = File(tmp_path, behind.port)
    with gateway(tmp_path, "--config", str(file.path)) as running:
        wait_until(lambda: len(children(running)) == 2)
        before = children(running)
        file.say(store='journal_dir = "/proc/none"')
        running.signal(signal.SIGHUP)
        wait_until(lambda: "it was refused, the old one stays" in running.log.read_text())
        assert "/proc/none" in running.log.read_text()
        assert children(running) == before
        os.kill(min(before), signal.SIGKILL)  # its successor gets the old settings
        wait_until(lambda: len(children(running)) == 2 and min(before) not in children(running))
        assert httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).status_code == 200


def test_a_store_that_went_away_does_not_end_the_workers_that_serve(behind: Upstream, tmp_path: Path) -> None:
    journal, away = tmp_path / "journal", tmp_path / "away"
    file = File(tmp_path, behind.port)
    file.say(store=f'journal_dir = "{journal}"')
    with gateway(tmp_path, "--config", str(file.path)) as running:
        wait_until(lambda: len(children(running)) == 2 and len(list(journal.rglob("*.calls"))) == 4)
        for _ in range(4):  # they serve: before that, a worker that cannot start ends everything
            assert httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).status_code == 200
        journal.rename(away)
        journal.write_text("no folder")
        before = children(running)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: "ended with code 3; starting another" in running.log.read_text())
        assert max(before) in children(running)
        journal.unlink()
        away.rename(journal)
        wait_until(lambda: len(children(running)) == 2)
        for _ in range(4):
            assert httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).status_code == 200
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_a_worker_that_does_not_end_is_killed(behind: Upstream, tmp_path: Path) -> None:
    with gateway(
        tmp_path, "--backend", f"http://127.0.0.1:{behind.port}", "--workers", "2", STROM_SHUTDOWN_GRACE_S="0.2"
    ) as running:
        wait_until(lambda: len(children(running)) == 2)
        os.kill(min(children(running)), signal.SIGSTOP)
        running.signal(signal.SIGTERM)
        assert running.wait() == 1
        assert "did not end in time" in running.log.read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_systemd_is_told(behind: Upstream, tmp_path: Path, workers: str) -> None:
    file = File(tmp_path, behind.port)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(PATIENCE_S)
        arguments = ("--config", str(file.path), "--workers", workers)
        with gateway(tmp_path, *arguments, NOTIFY_SOCKET=str(tmp_path / "notify")) as running:
            assert heard.recv(100) == b"READY=1"
            assert httpx.get(running.url + "/healthz", timeout=PATIENCE_S).status_code == 200
            running.signal(signal.SIGHUP)
            reloading, now = heard.recv(100).split(b"\n")
            assert reloading == b"RELOADING=1"
            assert now.startswith(b"MONOTONIC_USEC=")
            assert heard.recv(100) == b"READY=1"
            running.signal(signal.SIGTERM)
            assert heard.recv(100) == b"STOPPING=1"
            assert running.wait() == 0
