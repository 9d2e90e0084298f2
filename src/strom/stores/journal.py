"""The write-ahead journal: what a process has taken in and its store has not committed yet outlives the process.

Two files per process, mapped into memory, written without fsync: what stands in a mapped page survives the death of the process
(`kill -9`, out of memory), though not that of the machine. A file is a row of slots, each a length and then a record as JSON.
One has small slots, for calls under way, which may be many for long; the other has large ones, for calls that have settled. A
call's record is written when it begins, again when it settles, and freed when the store has committed it.

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

SMALL_BYTES = 512
LARGE_BYTES = 2048
CHUNK_SLOTS = 1024
MAX_CHUNKS = 64
"""65,536 calls of either kind, in at most 32 and 128 MiB."""
SUFFIX = ".calls"
_LENGTH = struct.Struct("<H")
_set_length = _LENGTH.pack_into
_HEAD = _LENGTH.size
_SMALL_ROOM = SMALL_BYTES - _HEAD
_LARGE_ROOM = LARGE_BYTES - _HEAD


class _Slots:
    """A file of slots of one size. `free`: pieces of it, and where in them nothing stands."""

    __slots__ = ("_chunk_bytes", "_chunks", "_file", "_max_chunks", "_path", "_slot_bytes", "free")

    def __init__(self, folder: Path, name: str, slot_bytes: int, max_chunks: int) -> None:
        self._slot_bytes = slot_bytes
        self._chunk_bytes = slot_bytes * CHUNK_SLOTS
        self._max_chunks = max_chunks
        self._chunks: list[mmap.mmap] = []
        self.free: list[tuple[mmap.mmap, int]] = []
        self._path, self._file = _create(folder, f"{name}-{slot_bytes}")
        self._grow()

    def try_to_grow(self) -> bool:
        if len(self._chunks) >= self._max_chunks:
            return False
        try:
            self._grow()
        except OSError:
            return False
        return True

    def close(self, *, keep: bool) -> None:
        for chunk in self._chunks:
            chunk.close()
        if not keep:
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _grow(self) -> None:
        start = len(self._chunks) * self._chunk_bytes
        _reserve(self._file, start, self._chunk_bytes)
        chunk = mmap.mmap(self._file, self._chunk_bytes, offset=start)
        self._chunks.append(chunk)
        self.free.extend((chunk, at) for at in range(self._chunk_bytes - self._slot_bytes, -1, -self._slot_bytes))


Slot = tuple[mmap.mmap, int, _Slots]


class Journal:
    """Its owner sees to it that one thread at a time is in here."""

    def __init__(self, folder: Path, *, max_chunks: int = MAX_CHUNKS) -> None:
        """Raises ConfigError when the folder cannot be written."""
        self.folder = folder
        self._slots: dict[str, Slot] = {}
        self._closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = f"{os.getpid()}-{secrets.token_hex(4)}"
            self._small = _Slots(folder, name, SMALL_BYTES, max_chunks)
            self._large = _Slots(folder, name, LARGE_BYTES, max_chunks)
        except OSError as error:
            raise ConfigError(
                f"calls under way cannot be noted in {folder} ({os.strerror(error.errno or 0)}): "
                "journal_dir in [store] names another folder"
            ) from None

    def write(self, trace_id: str, record: bytes) -> bool:
        """Note a call's record in place of its earlier one. False: there is no room, and the earlier one stays."""
        length, slots = len(record), self._slots
        kind = self._small if length <= _SMALL_ROOM else self._large
        if length > _LARGE_ROOM or not (kind.free or kind.try_to_grow()):
            return False
        chunk, at = kind.free.pop()
        chunk[at + _HEAD : at + _HEAD + length] = record
        _set_length(chunk, at, length)
        before = slots.get(trace_id)
        slots[trace_id] = (chunk, at, kind)
        if before is not None:
            _give_back(before)
        return True

    def free(self, trace_id: str) -> None:
        """The store has it."""
        slot = None if self._closed else self._slots.pop(trace_id, None)
        if slot is not None:
            _give_back(slot)

    def close(self) -> None:
        """A file stays only if something in it is not in the store: the next opener takes that over."""
        if self._closed:
            return
        self._closed = True
        kinds = {id(kind) for _, _, kind in self._slots.values()}
        for kind in (self._small, self._large):
            kind.close(keep=id(kind) in kinds)


def _give_back(slot: Slot) -> None:
    chunk, at, kind = slot
    _set_length(chunk, at, 0)
    kind.free.append((chunk, at))


def _create(folder: Path, name: str) -> tuple[Path, int]:
    """The file gets its name when it is locked: before that nobody may take it for a dead process's."""
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
        yield _records(file, _slot_bytes(path))
        path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _is_dead(file: int, path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(file).st_ino
    except (BlockingIOError, FileNotFoundError):  # alive; or somebody else was faster
        return False


def _slot_bytes(path: Path) -> int:
    """Its name says it."""
    told = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    return SMALL_BYTES if told == str(SMALL_BYTES) else LARGE_BYTES


def _records(file: int, slot_bytes: int) -> list[bytes]:
    found: list[bytes] = []
    size = os.fstat(file).st_size
    for start in range(0, size - slot_bytes + 1, slot_bytes):
        slot = os.pread(file, slot_bytes, start)
        (length,) = _LENGTH.unpack_from(slot)
        if 0 < length <= slot_bytes - _HEAD:
            found.append(slot[_HEAD : _HEAD + length])
    return found
