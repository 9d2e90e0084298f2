"""A gateway under load, faults and killed workers for a long time: nothing lies, nothing leaks, no call is lost.

soak.py [--minutes N] [--streams N] [--seed N] [--report FILE] [--no-kills]

`strom serve --workers 2` with keys, limits, queues, continuation, SQLite records and metrics stands before a backend that fails
in all ways (soak_backend.py); `--streams` clients of all four protocols (soak_clients.py) ask at once, well and badly behaved.
Every 30 s the younger worker is killed, so that the older one shows what a long life does to memory. Checked are the promises
to clients; afterwards that the records know every call that the backend saw, once, and agree with what clients were told; that
memory and open files of the older worker and of the supervisor are flat from minute 3 on (± 5 %); that no zombie and no socket
is left. The report is JSON; the exit code says whether all was well. Needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.e2e.crashing import all_records
from tests.e2e.processes import Gateway
from tools.soak_backend import MARK, Backend
from tools.soak_clients import Crowd
from tools.soak_report import Outcome, check_records, report, table
from tools.soak_watch import Watch, look

SETTLE_S = 30.0
ADMIN = "sk-admin-0000000000000000"
KEYS = [f"sk-soak-{number}-000000000000" for number in range(8)]
CONFIG = """
[server]
heartbeat_s = 2
slow_reader_s = 6
resume_grace_s = 3
resume_retention_s = 5
log_level = "warning"
[store]
url = "sqlite:///{folder}/strom.db"
[auth]
required = true
[limits]
concurrent = 5000
"""
PROVIDERS = {"chat": "openai-chat", "messages": "anthropic", "responses": "openai-responses", "ollama": "ollama"}
MODELS = {
    "chat": ["chat", "responses"],
    "messages": ["messages", "chat"],
    "mixed": ["ollama", "responses", "messages"],
    "going-on": ["messages", "ollama", "chat"],
}


def configuration(folder: Path, backend: str) -> str:
    parts = [CONFIG.format(folder=folder)]
    for name, protocol in PROVIDERS.items():
        # Half of all requests fail on purpose: circuits that open would leave too little to look at. One may.
        health = (
            ""
            if name == "ollama"
            else "[providers.health]\nfailures = 1000\nfailure_ratio = 1.0\nwindow_calls = 100000\n"
        )
        parts.append(f'[[providers]]\nname = "{name}"\nprotocol = "{protocol}"\nbase_url = "{backend}"\n')
        parts.append(f"[providers.timeouts]\nconnect_s = 5\nfirst_token_s = 20\nidle_s = 4\n{health}")
    for name, places in MODELS.items():
        more = "continuation = true\n" if name == "going-on" else "retries = 1\n" if name == "chat" else ""
        parts.append(f'[[models]]\nname = "{name}"\n{more}')
        for order, place in enumerate(places):
            parts.append(
                f'[[models.endpoints]]\nprovider = "{place}"\nmodel = "real"\norder = {order}\nid = "{name}-{place}"\n'
            )
            if (name, order) == ("mixed", 0):
                parts.append("max_concurrent = 40\nqueue = 20\nqueue_timeout_s = 5\n")
    parts.append('[[keys]]\nname = "admin"\nkey_env = "ADMIN_KEY"\nadmin = true\n')
    for number, _ in enumerate(KEYS):
        limits = (
            "requests_per_minute = 60"
            if number == 0
            else "tokens_per_minute = 100000000, requests_per_minute = 1000000"
        )
        parts.append(f'[[keys]]\nname = "k{number}"\nkey_env = "KEY_{number}"\nlimits = {{ {limits} }}\n')
    return "".join(parts)


async def idle(running: Gateway, backend: Backend, watch: Watch, files: int) -> list[str]:
    """Once all clients are gone: everything that was opened for them is closed."""
    until = time.monotonic() + SETTLE_S
    while True:
        sample = look(watch.old, "old", 0.0, 0)
        left = sample.files - files if sample is not None else 0
        if left <= 3 and not backend.open:
            return []
        if time.monotonic() > until:
            return [f"{left} more open files than before, {backend.open} answers still under way"]
        await asyncio.sleep(1)


async def soak(options: argparse.Namespace, folder: Path) -> Outcome:
    backend = Backend(options.seed)
    await backend.start()
    (folder / "strom.toml").write_text(configuration(folder, backend.url))
    keys = {f"KEY_{number}": key for number, key in enumerate(KEYS)}
    arguments = ["--port", "0", "--workers", "2", "--config", str(folder / "strom.toml")]
    running = Gateway(folder, arguments, {**keys, "ADMIN_KEY": ADMIN})
    try:
        await asyncio.to_thread(running.wait_ready)
        await asyncio.sleep(2)
        return await _under_load(options, folder, backend, running)
    finally:
        running.end()
        backend.close()


async def _under_load(options: argparse.Namespace, folder: Path, backend: Backend, running: Gateway) -> Outcome:
    crowd = Crowd(int(running.url.rpartition(":")[2]), backend, KEYS, options.seed)
    watch = Watch(running, crowd, ADMIN)
    first = look(watch.old, "old", 0.0, 0)
    assert first is not None
    steps = [watch.watch, watch.scrape, *([] if options.no_kills else [watch.kill])]
    around = [asyncio.create_task(step()) for step in steps]
    clients = [asyncio.create_task(crowd.play(number)) for number in range(options.streams)]
    await asyncio.sleep(options.minutes * 60)
    crowd.ended = watch.ended = True
    await asyncio.gather(*clients)
    faults = await idle(running, backend, watch, first.files)
    watch.look()
    for task in around:
        task.cancel()
    running.signal(signal.SIGTERM)
    code = await asyncio.to_thread(running.wait, 60)
    records = all_records(f"sqlite:///{folder / 'strom.db'}")
    faults += watch.faults + check_records(records, backend, crowd)
    faults += [f"it ended with {code}"] if code else []
    log = running.log.read_text()
    faults += [line[:300] for line in log.splitlines() if "defect" in line or "Traceback" in line][:5]
    faults += ["message text in the log"] if MARK.search(log.encode()) else []
    return Outcome(options.minutes, backend, crowd, watch.samples, records, faults)


def raise_file_limit() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--report", type=Path, default=Path("build/soak.json"))
    options = parser.parse_args()
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="strom-soak-") as folder:
        outcome = uvloop.run(soak(options, Path(folder)))
    told = {"streams": options.streams, "seed": options.seed, **report(outcome)}
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))
    print(table(told))
    for what in [*told["lies"][:20], *told["faults"][:20], *told["late"][:20]]:
        print("  ", what)
    return 1 if told["lies_count"] or told["faults_count"] or told["late"] else 0


if __name__ == "__main__":
    sys.exit(main())
