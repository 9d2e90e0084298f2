"""Replicas of the gateway behind nginx on machines of their own: network namespaces, as far as this machine permits them.

    client, nginx, upstream, PostgreSQL, Redis   on this host
    replica a, replica b                         each in a namespace, joined to this host by a pair of virtual cables

PostgreSQL, Redis and the upstream listen on loopback, which a namespace does not reach: a `Relay` leads there. Where namespaces
are not permitted the replicas are on loopback addresses of their own, and `Host.is_apart` says so. Linux.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.deploy.sites import ROOT, Site
from tests.patience import PATIENCE_S

_NUMBERS = itertools.count()
CONFIG = """
[server]
host = "{address}"
port = {port}
workers = 2
shutdown_grace_s = 10
[store]
url = "{store}"
auto_upgrade = true
journal_dir = "{folder}/journal"
[shared]
url = "{shared}"
on_failure = "closed"
timeout_ms = 5000
lease_s = 5
[auth]
required = true
[[providers]]
name = "p"
base_url = "{upstream}"
[[keys]]
name = "operator"
key_env = "OPERATOR_KEY"
admin = true
[[keys]]
name = "free"
key_env = "FREE_KEY"
[[keys]]
name = "counted"
key_env = "COUNTED_KEY"
limits = {{ requests_per_minute = 30 }}
[[keys]]
name = "narrow"
key_env = "NARROW_KEY"
limits = {{ concurrent = 8 }}
"""
KEYS = {f"{name.upper()}_KEY": f"sk-{name}-00000000000000000000" for name in ("operator", "free", "counted", "narrow")}


class Host(NamedTuple):
    """A machine of a replica: its address, this host's as seen from there, and what runs a program there."""

    address: str
    hub: str
    prefix: tuple[str, ...]

    @property
    def is_apart(self) -> bool:
        return bool(self.prefix)


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    names = [f"strom-{os.getpid()}-{next(_NUMBERS)}" for _ in range(count)]
    made: list[Host] = []
    try:
        try:
            made = [_make_namespace(name) for name in names]
        except (OSError, subprocess.SubprocessError):
            made = [Host(f"127.0.{100 + next(_NUMBERS)}.1", "127.0.0.1", ()) for _ in range(count)]
        yield made
    finally:
        for name in names:
            _clear(f"netns delete {name}")
        for host in made:
            if host.is_apart:
                first, _, last = host.hub.rpartition(".")
                _clear(f"route delete unreachable {first}.{int(last) - 1}/30 metric 9000")


def _make_namespace(name: str) -> Host:
    """198.18.0.0/15 is for tests between machines (RFC 2544) and belongs to nobody; what is meant for it stays here."""
    number = next(_NUMBERS) % 200
    block = f"198.18.{os.getpid() % 250}.{number % 60 * 4}"
    first, _, last = block.rpartition(".")
    hub, address = f"{first}.{int(last) + 1}", f"{first}.{int(last) + 2}"
    ours, theirs = f"vs{os.getpid()}h{number}"[:15], f"vs{os.getpid()}r{number}"[:15]
    for line in (
        f"route add unreachable {block}/30 metric 9000",
        f"netns add {name}",
        f"link add {ours} type veth peer name {theirs} netns {name}",
        f"address add {hub}/30 dev {ours}",
        f"link set {ours} up",
        f"-n {name} address add {address}/30 dev {theirs}",
        f"-n {name} link set {theirs} up",
        f"-n {name} link set lo up",
    ):
        subprocess.run(["ip", *line.split()], check=True, capture_output=True, timeout=PATIENCE_S)
    return Host(address, hub, ("ip", "netns", "exec", name))


def _clear(line: str) -> None:
    with suppress(OSError):  # no such program: then nothing was made
        subprocess.run(["ip", *line.split()], check=False, capture_output=True, timeout=PATIENCE_S)


class Relay:
    """Leads connections to ports of this host's loopback; one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def lead(self, address: str, port: int) -> int:
        """The port at this address behind which `port` of loopback is."""

        async def start() -> int:
            server = await asyncio.start_server(lambda r, w: _carry(r, w, port), address, 0)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result(5)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    with suppress(OSError):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Services(NamedTuple):
    """On this host's loopback."""

    upstream_port: int
    store_url: str
    shared_url: str


class Replica:
    """`strom serve --workers 2` on a host. `start` again after `kill`."""

    def __init__(self, host: Host, folder: Path, relay: Relay, services: Services) -> None:
        self.host = host
        self.port = 8080 if host.is_apart else _free_port()
        self._folder = folder
        folder.mkdir()

        def reach(url: str) -> str:
            return re.sub(r"127\.0\.0\.1:(\d+)", lambda m: f"{host.hub}:{relay.lead(host.hub, int(m[1]))}", url)

        text = CONFIG.format(
            address=host.address,
            port=self.port,
            folder=folder,
            store=re.sub(r":[^:/@]+@", "@", reach(services.store_url)),
            shared=reach(services.shared_url),
            upstream=reach(f"http://127.0.0.1:{services.upstream_port}"),
        )
        (folder / "strom.toml").write_text(text)
        password = re.search(r":([^:/@]+)@", services.store_url)
        assert password
        own = {name: value for name, value in os.environ.items() if not name.startswith("STROM_")}
        self._environment = {**own, **KEYS, "PGPASSWORD": password[1], "PYTHONPATH": str(ROOT / "src")}
        self.log = folder / "stderr.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self.host.prefix, sys.executable, "-m", "strom", "serve", "--config", "strom.toml"],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert b"listens on" in line, f"{line!r} {self.log.read_text()}"

    def kill(self) -> None:
        """All its processes at once, as if by the kernel."""
        assert self.process is not None
        own = self.process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for pid in (own, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Stage(NamedTuple):
    a: Replica
    b: Replica
    url: str
    """nginx, with the site of deploy/nginx and a header x-served-by."""


@contextmanager
def stage(folder: Path, services: Services) -> Iterator[Stage]:
    """Two replicas that serve, behind nginx."""
    relay = Relay()
    with hosts(2) as machines:
        replicas = [
            Replica(host, folder / name, relay, services) for host, name in zip(machines, ("a", "b"), strict=True)
        ]
        try:
            replicas[0].start()  # it makes the tables
            replicas[0].wait_ready()
            replicas[1].start()
            replicas[1].wait_ready()
            servers = [f"{replica.host.address}:{replica.port}" for replica in replicas]
            with Site(
                folder, "deploy/nginx/strom.conf", servers, "add_header x-served-by $upstream_addr always;"
            ) as site:
                yield Stage(replicas[0], replicas[1], site.url)
        finally:
            for replica in replicas:
                replica.end()
            relay.close()
