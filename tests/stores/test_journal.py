"""The journal: what it holds when its process is gone, and who may take it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from strom.core.errors import ConfigError
from strom.core.record import CallRecord
from strom.stores.journal import CHUNK_SLOTS, LARGE_BYTES, SMALL_BYTES, SUFFIX, Journal, left_behind
from strom.stores.recovery import LOST, settled
from strom.stores.rows import encode
from tests.patience import PATIENCE_S
from tests.stores.kinds import sql_store, sqlite_url

_DIES = """
import os, sys, signal
from strom.core.record import CallRecord
from strom.stores.options import StoreOptions
from strom.stores.table import open_store
store = open_store(f"sqlite:///{sys.argv[1]}", StoreOptions(interval_s=3600))
for number in range(int(sys.argv[2])):
    record = CallRecord(f"t{number:05}", started_at=float(number), protocol_in="ollama", key_name="ci", model_requested="m")
    store.begin(record)
    if number % 2:
        record.status, record.deltas = "completed", 7
        store.put(record)
os.kill(os.getpid(), signal.SIGKILL)
"""
_LIVES = _DIES.replace("os.kill(os.getpid(), signal.SIGKILL)", "print('ready', flush=True); sys.stdin.read()")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def read(path: Path) -> list[bytes] | None:
    with left_behind(path) as found:
        return found


def abandon(journal: Journal) -> Path:
    """As if its process had died: the lock goes, the one file that holds something stays."""
    journal.close()
    (path,) = files(journal.folder)
    return path


def test_what_was_written_and_not_freed_stands_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for name in ("a", "b", "c"):
        assert journal.write(name, name.encode() * 10)
    journal.free("b")
    path = abandon(journal)
    assert read(path) == [b"a" * 10, b"c" * 10]
    assert read(path) is None
    assert files(tmp_path) == []


def test_a_later_state_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for _ in range(3 * CHUNK_SLOTS):
        assert journal.write("a", b"begun")
        assert journal.write("a", b"settled")
    assert read(abandon(journal)) == [b"settled"]


def test_nothing_stays_of_a_journal_that_is_empty_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"x")
    journal.free("a")
    journal.free("a")
    journal.close()
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_it_grows_and_has_an_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_chunks=2)
    done = [journal.write(f"t{number}", b"x") for number in range(2 * CHUNK_SLOTS + 2)]
    assert done == [True] * 2 * CHUNK_SLOTS + [False, False]
    journal.free("t7")
    assert journal.write("new", b"y")
    assert not journal.write("long", b"x" * LARGE_BYTES)
    found = read(abandon(journal))
    assert found is not None
    assert len(found) == 2 * CHUNK_SLOTS


def test_a_record_that_has_no_room_leaves_the_earlier_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"begun")
    assert not journal.write("a", b"x" * LARGE_BYTES)
    assert read(abandon(journal)) == [b"begun"]


def test_a_living_process_keeps_its_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"x")
    assert [read(path) for path in files(tmp_path)] == [None, None]
    assert len(files(tmp_path)) == 2
    journal.close()


def test_a_large_record_and_a_small_one(tmp_path: Path) -> None:
    """Under way a call needs little room, settled more; killed between the two it is the settled one."""
    journal = Journal(tmp_path)
    large = b"l" * (LARGE_BYTES - 2)
    journal.write("a", b"begun")
    journal.write("a", large)
    journal.write("b", b"s" * (SMALL_BYTES - 2))
    journal.close()
    first, second = files(tmp_path)
    assert read(first) == [large]
    assert read(second) == [b"s" * (SMALL_BYTES - 2)]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="journal_dir"):
        Journal(tmp_path / "file" / "folder")


def test_a_call_that_settled_is_what_it_was_and_another_is_lost() -> None:
    done = CallRecord("t1", "completed", 1.0, 2.0, deltas=3)
    found = settled([encode(done), encode(CallRecord("t1")), b"{", encode(CallRecord("t2", started_at=5.0))], 9.0)
    assert found == [done, CallRecord("t2", "failed", 5.0, 9.0, fault="gateway", error=LOST)]
    assert (found[1].usage.output_tokens, found[1].usage_source, found[1].cost_estimate) == (None, "none", None)


# --- with a store --------------------------------------------------------------------------------


def test_the_next_start_takes_over_what_a_killed_process_left(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    assert subprocess.run([sys.executable, "-c", _DIES, str(path), "100"], check=False, timeout=60).returncode == -9
    store = sql_store(sqlite_url(path))
    found = {record.trace_id: record for record in store.list(limit=200).records}
    assert len(found) == 100
    assert (found["t00001"].status, found["t00001"].deltas) == ("completed", 7)
    lost = found["t00000"]
    assert (lost.status, lost.fault, lost.error, lost.key_name) == ("failed", "gateway", LOST, "ci")
    assert lost.ended_at is not None
    store.close()
    assert files(tmp_path / "strom.calls") == []


def test_the_calls_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    other = subprocess.Popen(
        [sys.executable, "-c", _LIVES, str(path), "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    store = sql_store(sqlite_url(path))
    assert store.list().records == []
    other.kill()
    other.communicate(timeout=PATIENCE_S)
    store.close()
    again = sql_store(sqlite_url(path))
    assert len(again.list().records) == 4
    again.close()


def test_what_the_database_has_settled_stays(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    store = sql_store(sqlite_url(path), interval_s=0)
    done = CallRecord("t1", "completed", 1.0, 2.0)
    store.put(done)
    store.close()
    journal = Journal(tmp_path / "strom.calls")
    journal.write("t1", encode(msgspec.structs.replace(done, status="started")))
    journal.close()
    again = sql_store(sqlite_url(path))
    assert again.get("t1") == done
    again.close()


def test_what_is_committed_leaves_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    store = sql_store(sqlite_url(path), interval_s=0)
    for number in range(200):
        record = CallRecord(f"t{number}")
        store.begin(record)
        record.status = "completed"
        store.put(record)
    assert store.flush(20)
    for file, size in zip(files(tmp_path / "strom.calls"), (LARGE_BYTES, SMALL_BYTES), strict=True):
        content = file.read_bytes()
        assert all(content[at : at + 2] == b"\0\0" for at in range(0, len(content), size))
    store.close()
