"""Strom's own gateway as a program, before backends that a test names."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S


@contextmanager
def gateway(folder: Path, providers: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Before `providers`: name → (protocol, URL). Gives the gateway's URL; models are asked for as name/model."""
    lines = ["[auth]", "required = false"]
    for name, (protocol, url) in providers.items():
        lines += ["[[providers]]", f'name = "{name}"', f'protocol = "{protocol}"', f'base_url = "{url}"']
    config = folder / "strom.toml"
    config.write_text("\n".join(lines) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "strom", "serve", "--config", str(config), "--port", str(port)]
    output = folder / "output.log"
    with output.open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=log, stderr=log)
    try:
        _await(port, process, output)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert "Traceback" not in output.read_text(), output.read_text()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def _await(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < end, f"the gateway does not start:\n{output.read_text()}"
            time.sleep(0.05)
        else:
            return
