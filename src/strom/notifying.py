"""A word to systemd: that the gateway is ready, reads its configuration again, or stops (`Type=notify`).

Without `NOTIFY_SOCKET` in the environment nothing is said; that nobody listens is no fault of the gateway's.
Source: sd_notify(3), systemd 252: newline-separated assignments in one datagram; a leading @ stands for a NUL byte.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*lines: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(address)
        sender.sendall("\n".join(lines).encode())


def notify_reloading() -> None:
    """`READY` follows when it is over, whatever came of it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
