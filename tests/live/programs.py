"""Starts and stops the programs of the live tests: the gateway, a scripted backend, real model servers, real clients.

The clients and backends come from the scripts of the shared folder, which install what is missing (package registries only)
and keep it under ~/.cache. Everything listens on loopback; what a client would send elsewhere goes to a closed port here.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

START_LIMIT_S = 60
_DEAD_PROXY = "http://127.0.0.1:9"


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """A home without this user's logins and settings, no STROM_* of this shell, and nothing that leaves this machine."""
    foreign = ("STROM_", "ANTHROPIC_", "OPENAI_", "CLAUDE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _DEAD_PROXY)
    exempt = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost,::1")
    return kept | folders | proxies | exempt | {"HOME": str(home)} | more


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def get(url: str) -> tuple[int, bytes]:
    """Status and body, without any proxy; status 0 when nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


class Program:
    """A running process whose output goes to a file."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "output.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, url: str) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while get(url)[0] != 200:
            if self.process.poll() is not None or time.monotonic() > limit:
                raise AssertionError(f"{url} does not answer (exit {self.process.poll()}):\n{self.output}")
            time.sleep(0.1)

    def stop(self) -> int:
        """Ask it to end, as a service manager would. Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


class Gateway:
    """A running `strom serve`."""

    def __init__(self, program: Program, url: str) -> None:
        self.program, self.url = program, url


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[Gateway]:
    """`strom serve` of this environment on a free port; it has to end well when told to."""
    port = free_port()
    command = [sys.executable, "-m", "strom", "serve", "--port", str(port), *arguments]
    # The cache, where the weights lie, is this user's own: a fresh one would be filled by a download in every run.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    program = Program(command, folder, clean_environment(folder / "home", XDG_CACHE_HOME=cache, **environment))
    try:
        program.wait_for(f"http://127.0.0.1:{port}/healthz")
        yield Gateway(program, f"http://127.0.0.1:{port}")
    finally:
        code = program.stop()
    assert code == 0, program.output
    assert "Traceback" not in program.output, program.output


@contextmanager
def scripted_backend(shared: Path, folder: Path) -> Iterator[str]:
    """The backend that answers from a script, in every protocol. Gives its URL."""
    port = free_port()
    program = Program(
        [sys.executable, str(shared / "clients" / "scripted_backend.py"), "--port", str(port)], folder, os.environ
    )
    try:
        program.wait_for(f"http://127.0.0.1:{port}/__scenario")
        yield f"http://127.0.0.1:{port}"
    finally:
        program.stop()


@contextmanager
def model_server(shared: Path, script: str, *arguments: str, **environment: str) -> Iterator[str]:
    """A real model server by the name of its script; installed first when it is not there. Gives its URL."""
    path, port = str(shared / "backends" / script), str(free_port())
    # The script knows its server by its command line, which `ps` cuts at 80 columns where there is no terminal.
    wide = {**os.environ, "COLUMNS": "1000", **environment}
    command = [path, "start", "--port", port, *arguments]
    started = subprocess.run(command, env=wide, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stopped = subprocess.run([path, "stop", "--port", port], env=wide, capture_output=True, text=True, check=False)
        assert "stopped" in stopped.stderr, stopped.stderr


def calling_model(shared: Path) -> Path:
    """The folder of a tiny model that calls a tool when one is offered. Made once, of what `transformers.sh` leaves there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    backends = Path(os.environ.get("STROM_BACKENDS") or cache / "strom-backends")
    folder = backends / "tiny-calling-llama"
    if not (folder / "tokenizer_config.json").is_file():
        with model_server(shared, "transformers.sh"):
            pass  # now engine and random weights are there
        python, recipe = (
            str(backends / "venv-transformers/bin/python"),
            str(Path(__file__).with_name("calling_model.py")),
        )
        command = [python, recipe, str(backends / "tiny-random-llama"), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def install_clients(shared: Path, names: tuple[str, ...]) -> Path:
    """The folder with these clients; what is there already is left alone."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("CLIENTS") or cache / "strom-clients")
    command = [str(shared / "clients" / "install.sh"), str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run_client_script(shared: Path, script: str, *arguments: str, **environment: str) -> str:
    """One of the shared client scripts, which judge for themselves. Gives its output; fails with it."""
    path = str(shared / "clients" / script)
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^PASS ", done.stdout, re.MULTILINE), done.stdout
    return done.stdout
