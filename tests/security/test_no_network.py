"""A start needs no network: nothing is asked, fetched or reported anywhere but at the configured backends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WATCH = """
import json, os, sys

def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"):
        with open(os.environ["CALLS_SEEN"], "a") as file:
            file.write(json.dumps([event, repr(arguments[1:] if event == "socket.connect" else arguments)]) + "\\n")

sys.addaudithook(note)
"""
CONFIG = '[server]\nport = 0\n[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:9"\n'
ASK = """
import re, signal, subprocess, sys, urllib.request
command = [sys.executable, "-m", "strom", "serve", "--config", "strom.toml"]
started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
line = started.stdout.readline()
print(line, end="")
print(urllib.request.urlopen(re.search(r"http://\\S+", line)[0] + "/healthz").status)
started.send_signal(signal.SIGTERM)
print("ended", started.wait(20))
"""


def run(tmp_path: Path, *command: str, **more: str) -> str:
    (tmp_path / "strom.toml").write_text(CONFIG)
    own = {name: value for name, value in os.environ.items() if not name.startswith("STROM_")}
    env = {**own, "PYTHONPATH": str(ROOT / "src"), "STROM_STORE_URL": "memory://", **more}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def without_network() -> list[str]:
    """What runs a Python program where loopback is all there is; as it is, where no such place can be made."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None or subprocess.run([unshare, "-n", "true"], check=False).returncode:
        return [sys.executable, "-c"]
    return [unshare, "-n", "sh", "-c", f'{ip} link set lo up && exec "$0" -c "$1"', sys.executable]


def test_a_start_needs_nobody_and_calls_nobody(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    seen = tmp_path / "seen"
    seen.touch()
    told = run(tmp_path, *without_network(), ASK, PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}", CALLS_SEEN=str(seen))
    assert "listens on http://127.0.0.1:" in told
    assert "\n200\n" in told
    assert "ended 0" in told
    # The client in ASK is seen too: it asks loopback.
    calls = [json.loads(line) for line in seen.read_text().splitlines()]
    assert calls, "the watch does not work"
    for event, arguments in calls:
        assert "127.0.0.1" in arguments or "localhost" in arguments, (event, arguments)
