"""The write-ahead journal: what a process has taken in and its store has not committed yet outlives the process.

One file per process, mapped into memory, written without fsync: what stands in a mapped page survives the death of the process
(`kill -9`, out of memory), though not that of the machine. The file is a row of slots, each a length and then a record as JSON.
A call's record is written when it begins, again when it settles, and freed when the store has committed it.

Invariants: a slot is never overwritten while it counts, and its length is written last and cleared first, so that a slot holds
a whole record or none; the newer record of a call stands before the older one is freed. A process holds a lock on its file as
long as it lives: a file that can be locked belongs to a dead process, whose calls the next opener of the store takes over
(recovery.py). Space is reserved before it is mapped, since touching a page the disk has no room for would kill the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path

from strom.core.errors import ConfigError

SLOT_BYTES = 2048
CHUNK_SLOTS = 1024
MAX_CHUNKS = 64
"""65,536 calls under way or not committed yet, in at most 128 MiB."""
SUFFIX = ".calls"
_LENGTH = struct.Struct("<H")
_set_length = _LENGTH.pack_into
_CHUNK_BYTES = SLOT_BYTES * CHUNK_SLOTS
_HEAD = _LENGTH.size
_ROOM = SLOT_BYTES - _HEAD
Slot = tuple[mmap.mmap, int]
"""A piece of the file, and where in it."""


class Journal:
    """Its owner sees to it that one thread at a time is in here."""

    def __init__(self, folder: Path, *, max_chunks: int = MAX_CHUNKS) -> None:
        """Raises ConfigError when the folder cannot be written."""
        self.folder = folder
        self._max_chunks = max_chunks
        self._chunks: list[mmap.mmap] = []
        self._free: list[Slot] = []
        self._slots: dict[str, Slot] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path, self._file = _create(folder)
            self._grow()
        except OSError as error:
            raise ConfigError(
                f"calls under way cannot be noted in {folder} ({os.strerror(error.errno or 0)}): "
                "journal_dir in [store] names another folder"
            ) from None

    def write(self, trace_id: str, record: bytes) -> bool:
        """Note a call's record in place of its earlier one. False: there is no room, and the earlier one stays."""
        length, free, slots = len(record), self._free, self._slots
        if length > _ROOM or not (free or self._try_to_grow()):
            return False
        slot = free.pop()
        chunk, at = slot
        chunk[at + _HEAD : at + _HEAD + length] = record
        _set_length(chunk, at, length)
        before = slots.get(trace_id)
        slots[trace_id] = slot
        if before is not None:
            _set_length(*before, 0)
            free.append(before)
        return True

    def free(self, trace_id: str) -> None:
        """The store has it."""
        slot = self._slots.pop(trace_id, None) if self._file >= 0 else None
        if slot is not None:
            _set_length(*slot, 0)
            self._free.append(slot)

    def close(self) -> None:
        """The file stays only if something in it is not in the store: the next opener takes that over."""
        if self._file < 0:
            return
        for chunk in self._chunks:
            chunk.close()
        if not self._slots:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def _try_to_grow(self) -> bool:
        if len(self._chunks) >= self._max_chunks:
            return False
        try:
            self._grow()
        except OSError:
            return False
        return True

    def _grow(self) -> None:
        start = len(self._chunks) * _CHUNK_BYTES
        _reserve(self._file, start, _CHUNK_BYTES)
        chunk = mmap.mmap(self._file, _CHUNK_BYTES, offset=start)
        self._chunks.append(chunk)
        self._free.extend((chunk, at) for at in range(_CHUNK_BYTES - SLOT_BYTES, -1, -SLOT_BYTES))


def _create(folder: Path) -> tuple[Path, int]:
    """The file gets its name when it is locked: before that nobody may take it for a dead process's."""
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    hidden, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
    file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(path)
    except OSError:
        os.close(file)
        hidden.unlink(missing_ok=True)
        raise
    return path, file


def _reserve(file: int, start: int, count: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, count)
    else:  # macOS
        os.pwrite(file, bytes(count), start)


@contextlib.contextmanager
def left_behind(path: Path) -> Iterator[list[bytes] | None]:
    """The records in a dead process's file, held against others; None: its process lives, or it is gone.

    The file is removed when the block ends without an error.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        if not _is_dead(file, path):
            yield None
            return
        yield _records(file)
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _is_dead(file: int, path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(file).st_ino
    except (BlockingIOError, FileNotFoundError):  # alive; or somebody else was faster
        return False


def _records(file: int) -> list[bytes]:
    found: list[bytes] = []
    size = os.fstat(file).st_size
    for start in range(0, size - SLOT_BYTES + 1, SLOT_BYTES):
        slot = os.pread(file, SLOT_BYTES, start)
        (length,) = _LENGTH.unpack_from(slot)
        if 0 < length <= _ROOM:
            found.append(slot[_HEAD : _HEAD + length])
    return found
