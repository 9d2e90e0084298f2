"""What [server] says about who may connect and how: values that need more than themselves to be judged."""

from __future__ import annotations

from pathlib import Path

from strom.config.schema import ServerSettings
from strom.config.secret_files import SecretFileFault, check_secret_file
from strom.config.tables import Problems


def check_listening(server: ServerSettings, problems: Problems) -> None:
    _check_tls(server, problems)
    if server.admin_host is not None and server.admin_port is None:
        problems.add("server.admin_host", "says nothing without admin_port")
    if server.admin_port and server.admin_port == server.port:
        problems.add("server.admin_port", "is the port of the gateway itself")
    if "*" in server.allowed_origins:
        problems.warn("server.allowed_origins", "any page that a browser of this network shows can use this gateway")


def _check_tls(server: ServerSettings, problems: Problems) -> None:
    tls = server.tls
    if tls.cert_file is None and tls.key_file is None:
        return
    if tls.cert_file is None or tls.key_file is None:
        missing = "cert_file" if tls.cert_file is None else "key_file"
        problems.add(f"server.tls.{missing}", "is missing: a certificate and its key belong together")
        return
    if not Path(tls.cert_file).expanduser().is_file():
        problems.add("server.tls.cert_file", f"{tls.cert_file} is no file")
    try:
        check_secret_file(tls.key_file)
    except SecretFileFault as fault:
        problems.add("server.tls.key_file", str(fault))
