"""The nginx sites of deploy/, with addresses and certificate of a test in place of theirs, and nothing else changed."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
WRAP = """\
daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/error.log warn; {user}
events {{ worker_connections 2000; }}
http {{
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; access_log off;
  include {folder}/site.conf;
}}
"""
TLS_LINE = re.compile(r"^\s*ssl_\w+ .*;\n", re.MULTILINE)
SERVER_LINE = re.compile(r"^    server [\w.-]+:8080( [^;]*)?;.*\n", re.MULTILINE)


def nginx() -> str:
    """The program; skips (or, with CI set, fails) the test that asks when it is not there."""
    found = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is not None:
        return found
    reason = "nginx is missing: install the package nginx"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _with_servers(text: str, servers: Sequence[str]) -> str:
    """In place of those in the file; nothing may be left of them, and nothing but this machine be reached."""
    found = list(SERVER_LINE.finditer(text))
    assert found, "no server in the upstream block"
    lines = "".join(f"    server {each}{found[0][1] or ''};\n" for each in servers)
    text = text[: found[0].start()] + lines + SERVER_LINE.sub("", text[found[0].start() :])
    assert re.findall(r"^\s*server ([^\s;{]+)", text, re.MULTILINE) == list(servers), text
    ours = [ipaddress.ip_network(block) for block in ("127.0.0.0/8", "198.18.0.0/15")]
    for each in servers:
        address = ipaddress.ip_address(each.partition(":")[0])
        assert any(address in block for block in ours), f"{each} is no address of a test"
    return text


class Site:
    """An nginx of its own on a free loopback port. `certificate`: paths of chain and key; None: plain HTTP."""

    def __init__(
        self,
        folder: Path,
        file: str,
        servers: Sequence[str],
        more: str = "",
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._program = nginx()
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self._address = ("127.0.0.1", port)
        text = (ROOT / file).read_text()
        text = _with_servers(text, servers)
        text = re.sub(r"^    listen \[::\].*\n", "", text, flags=re.MULTILINE)
        text = re.sub(
            r"listen (443 ssl http2|8080);", f"listen 127.0.0.1:{port}{' ssl http2' if certificate else ''};", text
        )
        if certificate is None:
            text = TLS_LINE.sub("", text)
        else:
            text = re.sub(r"ssl_certificate .*;", f"ssl_certificate {certificate[0]};", text)
            text = re.sub(r"ssl_certificate_key .*;", f"ssl_certificate_key {certificate[1]};", text)
        text = text.replace("/var/log/nginx/strom.log", str(folder / "access.log"))
        text = text.replace("    location / {\n", f"    location / {{\n        {more}\n", 1)
        (folder / "site.conf").write_text(text)
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(WRAP.format(folder=folder, user=user))
        self._command = [
            self._program,
            "-p",
            str(folder),
            "-c",
            str(folder / "nginx.conf"),
            "-e",
            str(folder / "error.log"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> str:
        """What `nginx -t` says; fails if it finds a fault."""
        done = subprocess.run([*self._command, "-t"], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def __enter__(self) -> Site:
        self._process = subprocess.Popen(self._command, start_new_session=True)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._process.poll() is None, (self._folder / "error.log").read_text()
            assert time.monotonic() < deadline, "nginx does not answer"
            try:
                socket.create_connection(self._address, timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE_S)
