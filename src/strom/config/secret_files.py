"""Secrets out of files: only out of those that their owner alone may use.

Source: the convention of OpenSSH for its keys; systemd's credentials and Docker's secrets can be given that mode.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 65_536


class SecretFileFault(Exception):
    """Why a file is not taken; the text says what to do and shows nothing of the file."""


def check_secret_file(path: str) -> Path:
    """The file to read. Links are followed: the mode that counts is the file's own. Raises SecretFileFault."""
    place = Path(path).expanduser()
    try:
        found = os.stat(place)
    except OSError as error:
        raise SecretFileFault(f"{path} cannot be read: {error.strerror or 'not a file'}") from None
    if not stat.S_ISREG(found.st_mode):
        raise SecretFileFault(f"{path} is no file")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise SecretFileFault(f"{path} is open to others than its owner (mode {mode:04o}); close it: chmod 600 {path}")
    return place


def read_secret_file(path: str) -> str:
    """The text without space around it. Raises SecretFileFault."""
    place = check_secret_file(path)
    try:
        with place.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretFileFault(f"{path} cannot be read: {error.strerror or 'not a file'}") from None
    if len(raw) > MAX_BYTES:
        raise SecretFileFault(f"{path} is too large for a key")
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise SecretFileFault(f"{path} is not UTF-8 text") from None
