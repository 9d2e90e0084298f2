"""A PostgreSQL and a Redis of the test session's own: on free loopback ports, in temporary folders, ended with the session.

`postgres_url`       a database that the whole session shares (tests that need an empty one take `postgres_database`)
`redis_url`          a Redis that the whole session shares; nothing is kept on disk
`postgres_database`  the URL of a database made for one test
`redis_server`       a Redis of one test's own, which the test may stop and start again

Where the programs are missing (Debian: `postgresql`, `redis-server`) a test that needs them is skipped, and fails with CI
set. PostgreSQL refuses to run as root, so that root starts it as the user `postgres`, else `nobody`. The URLs carry a password,
as real ones do. Each server ends with the session, also with one that is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

PASSWORD = "swordfish-of-the-test-database"
_START_S = PATIENCE_S
_WATCH = '"$@" </dev/null & child=$!; read -r _; kill -s "$0" $child; wait $child'
"""Runs a program until its own input ends, as it does with whoever holds the other side; then that program ends at once."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """`postgresql://strom:…@127.0.0.1:PORT/strom`."""
    server = PostgresServer()
    try:
        server.start()
        yield server.url("strom")
    finally:
        server.stop()


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """A fresh, empty database; dropped after the test, whoever is still connected."""
    psycopg = pytest.importorskip("psycopg")
    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """`redis://127.0.0.1:PORT/0`."""
    server = RedisServer()
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """Started. `stop`, `start` (same port), `pause`, `resume` are the test's."""
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


class RedisServer:
    """Keeps its port over `stop` and `start`; what it held is gone then."""

    def __init__(self) -> None:
        self._program = _program("redis-server", "redis-server")
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        self._process = _spawn("KILL", [self._program, *options, "--dir", tempfile.gettempdir()])
        _wait_until(lambda: _redis_answers(self.port), self._process, "redis-server")

    def stop(self) -> None:
        """At once, as if its machine had died."""
        if self._process is not None:
            self.resume()
            _end(self._process)
            self._process = None

    def pause(self) -> None:
        """It takes connections and answers nothing."""
        os.kill(self._child(), signal.SIGSTOP)

    def resume(self) -> None:
        if (child := self._child()) is not None:
            os.kill(child, signal.SIGCONT)

    def _child(self) -> Any:
        """The server itself: a shell stands before it."""
        if self._process is None or self._process.poll() is not None:
            return None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        listed = children.read_text().split() if children.exists() else []
        return int(listed[0]) if listed else None


class PostgresServer:
    """A cluster in a temporary folder, without durability: it is thrown away."""

    def __init__(self) -> None:
        self._program = _program("postgres", "postgresql", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))
        self._folder = Path(tempfile.mkdtemp(prefix="strom-postgres-"))
        self._user = _unprivileged()
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://strom:{PASSWORD}@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        self._initialise()
        quick = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB"]
        places = [f"port={self._port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=60"]
        settings = [word for setting in quick + places for word in ("-c", setting)]
        self._process = _spawn("QUIT", [self._program, "-D", str(self._folder / "data"), *settings], **self._user)
        _wait_until(lambda: self._answers("postgres"), self._process, "postgres")
        subprocess.run(
            [self._beside("createdb"), "-h", "127.0.0.1", "-p", str(self._port), "-U", "strom", "strom"],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            check=True,
            timeout=_START_S,
        )

    def stop(self) -> None:
        if self._process is not None:
            _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialise(self) -> None:
        if self._user:
            shutil.chown(self._folder, self._user["user"])
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ["--auth=scram-sha-256", f"--pwfile={password}", "--username=strom", "--no-sync", "--encoding=UTF8"]
        done = subprocess.run(
            [self._beside("initdb"), *options, "--locale=C", "-D", str(self._folder / "data")],
            capture_output=True,
            check=False,
            timeout=60,
            cwd=self._folder,
            **self._user,
        )
        assert done.returncode == 0, done.stderr.decode()

    def _answers(self, database: str) -> bool:
        asked = [self._beside("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port), "-d", database]
        return subprocess.run(asked, timeout=_START_S, check=False).returncode == 0

    def _beside(self, program: str) -> str:
        return str(Path(self._program).resolve().parent / program)


def _program(name: str, package: str, *folders: str) -> str:
    """Where a program lies; skips (or, with CI set, fails) the test that asks when it is not there."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *folders]))
    if found is not None:
        return found
    reason = f"{name} is missing: install the package {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _unprivileged() -> dict[str, Any]:
    """The arguments of `subprocess` that step down from root."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_name, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _spawn(end: str, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """`end`: the signal by which the program ends at once, without children left."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, end, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tempfile.gettempdir(),
        start_new_session=True,  # a Ctrl-C is for the tests, which end it in order
        **more,
    )


def _wait_until(answers: Callable[[], bool], process: subprocess.Popen[bytes], name: str) -> None:
    deadline = time.monotonic() + _START_S
    while not answers():
        assert process.poll() is None, f"{name} ended at its start"
        assert time.monotonic() < deadline, f"{name} does not answer"
        time.sleep(0.05)


def _redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_S)
