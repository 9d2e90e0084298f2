"""What auth, limits, records and metrics cost: a bare gateway beside full ones.  bench_overhead.py [--bench DIR] [--turns N]

All are up at once and measured in turns, so that the machine's moods meet them alike:
  bare    the gateway of strom.gateway on the transport alone: no keys, no limits, no records, no metrics
  full    `strom serve` as the benchmark configures it: key, policy, price, four kinds of limits, SQLite store, metrics
  redis   the same, with limits in a Redis of the run's own

CPU is that of the whole gateway process, its threads included (schedstat). Per call: streams of one chunk over 32 connections.
Per chunk: ten, then fifty long streams of a chunk every 10 ms. Then 200 calls, one after the other, for how often Redis read
from a connection. Aims: at most 25 µs a call and 1 µs a chunk over bare; one round trip a call. On a busy machine look at the
lowest figures: whatever else runs only adds. Needs Linux, gcc, make, redis-server and the folder of the benchmark; a turn
(default 12) takes about 10 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import socket
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("STROM_SHARED", ROOT.parent / "shared"))
UNITS = {"short": "call", "paced1000": "chunk, 1,000/s", "paced5000": "chunk, 5,000/s"}
SEQUENTIAL = 200
Costs = dict[tuple[str, str], list[float]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", type=Path, default=SHARED / "bench")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--bare", nargs=2, metavar=("UPSTREAM", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_bare(options.bare[0], int(options.bare[1])))
        return 0
    sys.path[:0] = [str(options.bench), str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        report(*measure(Path(folder), options.turns))
    return 0


class Nothing:
    """A sink of records that keeps none."""

    def begin(self, record: object) -> None:
        pass

    put = begin


async def serve_bare(address: str, port: int) -> None:
    """Until it is killed."""
    from strom.config.load import load_settings
    from strom.config.settings import Backend, Overrides
    from strom.gateway.gateway import Gateway, State
    from strom.gateway.routing import Router
    from strom.gateway.services import CallSettings, Services
    from strom.policies.auth import KeyRing
    from strom.protocols.table import CODECS
    from strom.transport.client import NativeClient
    from strom.transport.listener import Listener
    from strom.transport.timers import LoopClock
    from strom.upstreams.upstream import Upstream

    settings = load_settings(None, Overrides(backends=(Backend(address),)), {})
    services = Services(NativeClient(), Nothing(), CallSettings(), LoopClock(asyncio.get_running_loop()))
    router = Router([Upstream(each) for each in settings.providers.values()], (), ())
    gateway = Gateway(services, CODECS, State(router, KeyRing((), required=False)))
    listener = Listener(lambda exchange: gateway.handle_call(exchange, CODECS["openai-chat"]))
    await listener.start("127.0.0.1", port)
    await asyncio.Event().wait()


def measure(folder: Path, turns: int) -> tuple[Costs, float]:
    """CPU microseconds by variant and workload, one for each turn; and how often Redis was read from for one call."""

    from tests.services import RedisServer

    bench, machines, workloads = (import_module(name) for name in ("bench", "machine", "workloads"))
    redis = RedisServer()
    redis.start()
    bench.build(folder)
    machine = machines.Machine(folder, machines.Cpus.choose(""))
    costs: Costs = defaultdict(list)
    try:
        machine.start_mock()
        variants = make_variants(redis.url)
        with machine.running(variants, lambda variant, text: print(f"{variant.name}: {text}")) as targets:
            assert len(targets) == len(variants), "not every variant answers"
            for turn in range(turns):
                for name in UNITS:
                    for target in targets if turn % 2 else reversed(targets):
                        numbers = workloads.workload(name).run(machine, target, workloads.NORMAL)
                        assert not numbers["failed"], (target.variant.name, numbers)
                        costs[target.variant.name, name].append(numbers["cpu_us"])
            reads = read_events(redis.port)
            seen = machine.load(
                targets[-1], "--requests", SEQUENTIAL, "--seconds", 60, "--chunks", 1, "--timeout", 10
            ).result()
            reads = read_events(redis.port) - reads - 1
            assert seen["ok"] == SEQUENTIAL
    finally:
        machine.end_mock()
        redis.stop()
    return costs, reads / SEQUENTIAL


def make_variants(redis_url: str) -> list[Any]:
    variants = import_module("variants")

    def bare(place: Any) -> list[str]:
        upstream = f"http://127.0.0.1:{place.upstream_port}/v1"
        return [sys.executable, str(Path(__file__).resolve()), "--bare", upstream, str(place.port)]

    program = f"{shlex.quote(sys.executable)} -m strom"
    over_redis = f"env STROM_SHARED_URL={redis_url} {program}"
    found = [variants.Variant("bare", bare)]
    for name, command in (("full", program), ("redis", over_redis)):
        known = variants.strom(command, with_config=True)
        (serving,) = [each for each in known if each.name == "strom-config:relay"]
        found.append(variants.Variant(name, within_bounds(serving.command)))
    return found


def within_bounds(command: Callable[[Any], list[str]]) -> Callable[[Any], list[str]]:
    """The benchmark's limit on tokens is beyond the largest that is taken; neither is ever reached."""

    def build(place: Any) -> list[str]:
        words = command(place)
        path = place.folder / "strom.toml"
        text = path.read_text().replace("tokens_per_minute = 1000000000000", "tokens_per_minute = 100000000000")
        path.write_text(text)
        return words

    return build


def read_events(port: int) -> int:
    """How often Redis has read from a connection: once for a pipeline, however much is in it."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"INFO stats\r\n")
        told = b""
        while b"total_reads_processed:" not in told or not told.endswith(b"\r\n"):
            told += connection.recv(65536)
    return int(told.partition(b"total_reads_processed:")[2].split(b"\r\n")[0])


def report(costs: Costs, reads: float) -> None:
    print(
        f"load average {os.getloadavg()[0]:.1f}; µs of CPU, median over {len(costs['bare', 'short'])} turns [quartiles]"
    )
    for name, unit in UNITS.items():
        bare = costs["bare", name]
        print(f"per {unit}: bare {statistics.median(bare):.1f}, lowest {min(bare):.1f}")
        for variant in ("full", "redis"):
            added = [one - other for one, other in zip(costs[variant, name], bare, strict=True)]
            low, middle, high = statistics.quantiles(added, n=4) if len(added) > 1 else added * 3
            whole, least = statistics.median(costs[variant, name]), min(costs[variant, name]) - min(bare)
            print(
                f"  {variant}: {whole:.1f}, added {middle:+.1f} [{low:+.1f} to {high:+.1f}]; lowest to lowest {least:+.1f}"
            )
    print(f"Redis was read from {reads:.2f} times a call, one call after the other")


if __name__ == "__main__":
    sys.exit(main())
