"""Both response stores against the same expectations: what is kept, for whom, how long, and how much of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from strom.core.errors import ConfigError, GatewayError
from strom.stores.memory_responses import MemoryResponses
from strom.stores.responses import Events, Place, ResponseLimits, ResponseStore, StoredResponse
from strom.stores.sql_responses import SqlResponses
from strom.stores.table import open_response_store
from tests.stores.kinds import sql_responses, sql_store, sqlite_url


class Wall:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


Open = Callable[[ResponseLimits], ResponseStore]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def open_limited(request: pytest.FixtureRequest, tmp_path: Path, wall: Wall) -> Iterator[Open]:
    opened: list[ResponseStore] = []

    def open_store(limits: ResponseLimits) -> ResponseStore:
        made: ResponseStore = MemoryResponses(limits, wall)
        if request.param == "sqlite":
            made = sql_responses(sqlite_url(tmp_path / "s.db"), limits, wall)
        if request.param == "postgresql":
            made = sql_responses(request.getfixturevalue("postgres_store"), limits, wall)
        opened.append(made)
        return made

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def store(open_limited: Open) -> ResponseStore:
    return open_limited(ResponseLimits(retention_s=100.0))


def stored(identity: str, wall: Wall, owner: str = "anna", **more: object) -> StoredResponse:
    made = StoredResponse(Place(owner, identity), b'{"id":"%b"}' % identity.encode(), b'["x"]', created_at=wall.now)
    return msgspec.structs.replace(made, **more)


def test_what_is_put_is_there_for_its_owner(store: ResponseStore, wall: Wall) -> None:
    kept = stored("r1", wall, item_ids=("m1", "m2"))
    assert store.put(kept)
    found = store.get(Place("anna", "r1"))
    assert found is not None
    assert msgspec.structs.replace(found, item_ids=kept.item_ids) == kept
    assert store.get(Place("bert", "r1")) is None
    assert store.get(Place("anna", "r2")) is None


def test_the_last_state_counts(store: ResponseStore, wall: Wall) -> None:
    store.put(stored("r1", wall, item_ids=("m1",), running_until=1030.0, background=True))
    store.put(stored("r1", wall, item_ids=("m2",), response=b"{}", background=True))
    found = store.get(Place("anna", "r1"))
    assert found is not None
    assert (found.response, found.running_until, found.background) == (b"{}", None, True)
    assert store.with_item("anna", "m1") is None
    assert store.with_item("anna", "m2") is not None


def test_items_lead_to_the_newest_response_that_holds_them(store: ResponseStore, wall: Wall) -> None:
    for identity in ("r1", "r2", "r3"):
        store.put(stored(identity, wall, item_ids=("m1",)))
        wall.now += 1
    found = store.with_item("anna", "m1")
    assert found is not None
    assert found.place.id == "r3"
    assert store.with_item("bert", "m1") is None
    store.delete(found.place)
    found = store.with_item("anna", "m1")
    assert found is not None
    assert found.place.id == "r2"


def test_delete(store: ResponseStore, wall: Wall) -> None:
    store.put(stored("r1", wall, item_ids=("m1",)))
    store.append_events(Place("anna", "r1"), Events(0, b"a"))
    assert not store.delete(Place("bert", "r1"))
    assert store.delete(Place("anna", "r1"))
    assert not store.delete(Place("anna", "r1"))
    assert store.with_item("anna", "m1") is None
    assert store.events(Place("anna", "r1")) == []


def test_retention(store: ResponseStore, wall: Wall) -> None:
    store.put(stored("r1", wall, item_ids=("m1",)))
    wall.now += 99
    assert store.get(Place("anna", "r1")) is not None
    wall.now += 1
    assert store.get(Place("anna", "r1")) is None
    assert store.with_item("anna", "m1") is None
    assert not store.delete(Place("anna", "r1"))


def test_a_sweep_removes_what_is_old(store: ResponseStore, wall: Wall) -> None:
    for identity in ("r1", "r2"):
        store.put(stored(identity, wall))
        store.append_events(Place("anna", identity), Events(0, b"a"))
        wall.now += 60
    store.sweep()
    assert store.events(Place("anna", "r1")) == []
    assert store.events(Place("anna", "r2")) == [Events(0, b"a")]


def test_one_that_runs_does_not_age(store: ResponseStore, wall: Wall) -> None:
    store.put(stored("r1", wall, running_until=wall.now + 30))
    for _ in range(20):
        wall.now += 20
        store.renew([Place("anna", "r1"), Place("anna", "none")], wall.now + 30)
    found = store.get(Place("anna", "r1"))
    assert found is not None
    assert found.running_until == wall.now + 30
    wall.now += 131
    store.sweep()
    assert store.get(Place("anna", "r1")) is None


def test_renewing_does_not_bring_back_what_has_ended(store: ResponseStore, wall: Wall) -> None:
    store.put(stored("r1", wall))
    store.renew([Place("anna", "r1")], wall.now + 30)
    found = store.get(Place("anna", "r1"))
    assert found is not None
    assert found.running_until is None


def test_the_oldest_make_room_by_number(open_limited: Open, wall: Wall) -> None:
    store = open_limited(ResponseLimits(max_count=2))
    for identity in ("r1", "r2", "r3"):
        store.put(stored(identity, wall))
        wall.now += 1
    assert [store.get(Place("anna", identity)) is not None for identity in ("r1", "r2", "r3")] == [False, True, True]


def test_the_oldest_make_room_by_size_but_for_those_that_run(open_limited: Open, wall: Wall) -> None:
    store = open_limited(ResponseLimits(max_bytes=1000))
    store.put(stored("r1", wall, running_until=wall.now + 30))
    store.put(stored("r2", wall))
    store.put(stored("r3", wall, response=b"x" * 700))
    assert store.get(Place("anna", "r2")) is not None
    store.append_events(Place("anna", "r3"), Events(0, b"y" * 285))
    there = [store.get(Place("anna", identity)) is not None for identity in ("r1", "r2", "r3")]
    assert there == [True, False, True]


def test_what_is_larger_than_the_store_is_not_kept(open_limited: Open, wall: Wall) -> None:
    store = open_limited(ResponseLimits(max_bytes=100))
    store.put(stored("r1", wall))
    assert not store.put(stored("r2", wall, response=b"x" * 200))
    assert store.get(Place("anna", "r1")) is not None


def test_events_come_from_the_batch_that_holds_the_next_one(store: ResponseStore, wall: Wall) -> None:
    place = Place("anna", "r1")
    store.append_events(place, Events(0, b"lost"))
    store.put(stored("r1", wall))
    for batch in (Events(0, b"abc"), Events(3, b"de"), Events(5, b"f")):
        store.append_events(place, batch)
    assert [batch.first for batch in store.events(place)] == [0, 3, 5]
    assert [batch.first for batch in store.events(place, 1)] == [0, 3, 5]
    assert [batch.first for batch in store.events(place, 2)] == [3, 5]
    assert [batch.frames for batch in store.events(place, 9)] == [b"f"]


def test_asking_for_an_end(store: ResponseStore, wall: Wall) -> None:
    places = [Place("anna", identity) for identity in ("r1", "r2", "r3")]
    for place in places[:2]:
        store.put(stored(place.id, wall, running_until=wall.now + 30))
    store.ask_cancel(places[0])
    store.ask_cancel(places[2])
    assert store.unwanted(places) == {places[0], places[2]}


# --- SQLite alone --------------------------------------------------------------------------------


def test_it_lies_beside_the_records_and_outlives_the_process(tmp_path: Path, wall: Wall) -> None:
    path = tmp_path / "strom.db"
    records = sql_store(sqlite_url(path))
    wall.now = time.time()
    first, second = (sql_responses(sqlite_url(path), ResponseLimits(), wall) for _ in range(2))
    first.put(stored("r1", wall))
    assert second.get(Place("anna", "r1")) is not None
    first.close()
    second.close()
    records.close()
    again = open_response_store(f"sqlite:///{path}", ResponseLimits())
    assert again.get(Place("anna", "r1")) is not None
    again.close()
    assert isinstance(open_response_store("memory://", ResponseLimits()), MemoryResponses)


def test_deleted_text_is_gone_from_the_file(tmp_path: Path, wall: Wall) -> None:
    path = tmp_path / "strom.db"
    store = sql_responses(sqlite_url(path), ResponseLimits(), wall)
    store.put(stored("r1", wall, response=b'"a secret poem"' * 500))
    store.append_events(Place("anna", "r1"), Events(0, b"a secret event" * 500))
    store.delete(Place("anna", "r1"))
    store.close()  # the last connection: the write-ahead log goes with it
    assert b"secret" not in path.read_bytes()


def test_threads_and_connections_do_not_get_in_each_others_way(tmp_path: Path, wall: Wall) -> None:
    path = tmp_path / "strom.db"
    stores = [sql_responses(sqlite_url(path), ResponseLimits(), wall) for _ in range(2)]

    def work(store: SqlResponses, name: str) -> None:
        for number in range(25):
            store.put(stored(f"{name}{number}", wall, item_ids=("m",)))

    threads = [
        threading.Thread(target=work, args=(store, f"s{at}-{n}-")) for at, store in enumerate(stores) for n in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    places = [Place("anna", f"s{at}-{n}-{number}") for at in (0, 1) for n in (1, 2) for number in range(25)]
    assert stores[0].unwanted(places) == set()
    for store in stores:
        store.close()


def test_errors_are_ours(tmp_path: Path, wall: Wall) -> None:
    with pytest.raises(ConfigError):
        open_response_store(sqlite_url(tmp_path / "no" / "folder.db"), ResponseLimits())
    store = sql_responses(sqlite_url(tmp_path / "strom.db"), ResponseLimits(), wall)
    with pytest.raises(GatewayError):
        store.get(Place("anna", "\ud800"))
    store.put(stored("r1", wall))
    assert store.get(Place("anna", "r1")) is not None
    store.close()
    with pytest.raises(GatewayError):
        store.get(Place("anna", "r1"))
