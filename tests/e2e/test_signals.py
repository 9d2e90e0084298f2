"""Signals to a running gateway: it drains, it cuts, it reloads, and nobody is left without a word."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def backend(behind: Upstream) -> list[str]:
    return ["--backend", f"http://127.0.0.1:{behind.port}"]


def read_while(running: Gateway, text: str, act: Callable[[], None], path: str = CHAT) -> bytes:
    """The whole answer; `act` after its first piece."""
    body = b""
    with httpx.stream("POST", running.url + path, json=ask(text), timeout=PATIENCE_S) as response:
        for piece in response.iter_raw():
            if not body:
                act()
            body += piece
    return body


def refuses(running: Gateway) -> bool:
    try:
        httpx.get(running.url + "/healthz", timeout=PATIENCE_S)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it came while the listener closed
        pass
    return False


def test_sigterm_lets_a_stream_end_and_takes_no_new_one(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, *backend(behind)) as running:

        def stop() -> None:
            running.signal(signal.SIGTERM)
            wait_until(lambda: refuses(running))

        body = read_while(running, "n=10 gap=0.05", stop)
        assert body.rstrip().endswith(b"data: [DONE]")
        assert running.wait() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize(("path", "word"), [(CHAT, b"shut down"), ("/v1/messages", b"event: error")])
def test_what_outlives_the_grace_is_told_and_recorded(behind: Upstream, tmp_path: Path, path: str, word: bytes) -> None:
    with gateway(tmp_path, *backend(behind), STROM_SHUTDOWN_GRACE_S="0.5") as running:
        body = read_while(running, "n=1 end=hang", lambda: running.signal(signal.SIGTERM), path)
        assert word in body
        assert b"[DONE]" not in body
        assert running.wait() == 0
    wait_until(lambda: behind.open == 0)
    with gateway(tmp_path, *backend(behind)) as again:
        (trace,) = again.traces()
        assert (trace["status"], trace["fault"], trace["error"]["code"]) == ("failed", "gateway", "shutting_down")


def test_a_second_interrupt_cuts_at_once(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, *backend(behind), STROM_SHUTDOWN_GRACE_S="600") as running:

        def twice() -> None:
            running.signal(signal.SIGINT)
            wait_until(lambda: refuses(running))  # it has seen the first one
            running.signal(signal.SIGINT)

        body = read_while(running, "n=1 end=hang", twice)
        assert b"shut down" in body
        assert running.wait() == 0
        assert "Traceback" not in running.log.read_text()


def test_a_bad_file_is_refused_on_hangup_and_the_old_one_stays(behind: Upstream, tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    good = f'[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:{behind.port}"\n'
    file.write_text(good)
    with gateway(tmp_path, "--config", str(file)) as running:
        file.write_text(good + "[server]\nprot = 1\n")
        running.signal(signal.SIGHUP)
        wait_until(lambda: "was refused, the old one stays" in running.log.read_text())
        file.unlink()
        running.signal(signal.SIGHUP)
        wait_until(lambda: running.log.read_text().count("the old one stays") == 2)
        assert httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).status_code == 200
        file.write_text(good.replace('"p"', '"q"'))
        running.signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in running.log.read_text())
        assert b'"provider":"q"' in httpx.post(running.url + CHAT, json=ask("x"), timeout=PATIENCE_S).content
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found through /proc")


@needs_proc
def test_workers_share_a_port_and_one_that_dies_is_replaced(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, *backend(behind), "--workers", "2") as running:
        wait_until(lambda: len(children(running.process.pid)) == 2)
        for number in range(10):
            assert httpx.post(running.url + CHAT, json=ask(f"call {number}"), timeout=PATIENCE_S).status_code == 200
        wait_until(lambda: len(running.traces()) == 10)
        victim = children(running.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in children(running.process.pid) and len(children(running.process.pid)) == 2)
        wait_until(lambda: httpx.post(running.url + CHAT, json=ask("after"), timeout=PATIENCE_S).status_code == 200)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "Traceback" not in running.log.read_text()


@needs_proc
def test_an_interrupt_of_the_terminal_drains_workers_too(behind: Upstream, tmp_path: Path) -> None:
    """The terminal sends it to the whole process group: a worker must not take the parent's copy for a second one."""
    with gateway(tmp_path, *backend(behind), "--workers", "2") as running:
        wait_until(lambda: len(children(running.process.pid)) == 2)
        body = read_while(running, "n=10 gap=0.05", lambda: os.killpg(running.process.pid, signal.SIGINT))
        assert body.rstrip().endswith(b"data: [DONE]")
        assert running.wait() == 0


@needs_proc
def test_workers_do_not_outlive_their_parent(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, *backend(behind), "--workers", "2") as running:
        wait_until(lambda: len(children(running.process.pid)) == 2)
        pids = children(running.process.pid)
        running.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_port_that_is_taken_is_said_once(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, *backend(behind), "--workers", "2") as running:
        port = running.url.rpartition(":")[2]
        second = Gateway(tmp_path / "..", [*backend(behind), "--port", port, "--workers", "2"], {})
        try:
            assert second.wait() == 1
            assert second.log.read_text().count("Cannot listen") == 1
        finally:
            second.end()


def test_workers_that_cannot_start_end_everything(behind: Upstream, tmp_path: Path) -> None:
    failing = Gateway(
        tmp_path, [*backend(behind), "--port", "0", "--workers", "2"], {"STROM_STORE_URL": "sqlite:////no/such/x.db"}
    )
    try:
        assert failing.wait() == 1
        assert "cannot be opened" in failing.log.read_text()
        assert "Traceback" not in failing.log.read_text()
    finally:
        failing.end()
