"""Which recording answers: the same request, else the most alike, else in order; and how recordings are found on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.replay import lines
from strom.replay.recording import BadRecording, Recording
from strom.replay.shelf import Shelf, load
from tests.recordings import recordings_root
from tests.replay.recordings import asked, stream, whole


def source(recording: Recording | None) -> str | None:
    return None if recording is None else recording.source


def test_the_same_request_gets_its_own_answer_again_and_again() -> None:
    shelf = Shelf([whole("one", request={"q": 1}), whole("two", request={"q": 2})])
    assert [source(shelf.take(asked({"q": 2}))) for _ in range(3)] == ["two"] * 3
    assert source(shelf.take(asked({"q": 1}))) == "one"


def test_equal_requests_take_turns() -> None:
    shelf = Shelf([whole("one", request={"q": 1}), whole("two", request={"q": 1})])
    assert [source(shelf.take(asked({"q": 1}))) for _ in range(4)] == ["one", "two", "one", "two"]


def test_the_wish_to_stream_counts_more_than_members() -> None:
    shelf = Shelf([whole("whole", request={"model": "m", "n": 1}), stream(source="stream", request={"stream": True})])
    assert source(shelf.take(asked({"model": "m", "n": 1, "stream": True}))) == "stream"
    assert source(shelf.take(asked({"model": "m", "n": 2}))) == "whole"


def test_ollama_streams_by_default() -> None:
    shelf = Shelf(
        [whole("whole", request={"stream": False, "a": 1}, path="/api/chat"), whole("s", request={}, path="/api/chat")]
    )
    assert source(shelf.take(asked({"a": 1}, path="/api/chat"))) == "s"


def test_else_they_come_in_order_once_or_in_a_loop() -> None:
    recordings = [whole("one", request={"q": 1}), whole("two", request={"q": 2})]
    shelf = Shelf(recordings, loop=False)
    assert [source(shelf.take(asked({"q": 9}))) for _ in range(3)] == ["one", "two", None]
    shelf = Shelf(recordings)
    assert [source(shelf.take(asked({"q": 9}))) for _ in range(5)] == ["one", "two", "one", "two", "one"]


def test_method_and_path_must_fit_and_the_query_need_not() -> None:
    shelf = Shelf([whole("one", request={"q": 1})])
    assert shelf.take(asked({"q": 1}, path="/v1/messages")) is None
    assert shelf.take(asked({"q": 1}, method="PUT")) is None
    assert shelf.take(asked({"q": 1}, path="/v1/chat/completions?beta=true")) is not None
    assert shelf.knows(asked(None))
    assert shelf.paths() == ["POST /v1/chat/completions"]


def test_bodies_that_are_no_objects_are_compared_as_bytes() -> None:
    shelf = Shelf([whole("empty"), whole("list", request=[1])])
    assert source(shelf.take(asked([1]))) == "list"
    assert source(shelf.take(asked(None))) == "empty"


def test_models_are_those_that_were_asked_for() -> None:
    names = [{"model": "b"}, {"model": "a"}, {"model": "b"}, {"model": 3}, [1]]
    assert Shelf([whole("x", request=name) for name in names]).models() == ["b", "a"]


def test_files_and_folders(tmp_path: Path) -> None:
    one, two = lines.encode(whole("one")), lines.encode(whole("two"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.jsonl").write_bytes(two)
    (tmp_path / "1.jsonl").write_bytes(one + two)
    (tmp_path / "other.txt").write_text("no recording")
    assert [recording.body for recording in load(tmp_path)] == [whole(text).body for text in ("one", "two", "two")]
    assert [recording.source for recording in load(tmp_path / "1.jsonl")] == [str(tmp_path / "1.jsonl")] * 2


@pytest.mark.parametrize(
    ("name", "says"), [("missing.jsonl", "No such file"), ("empty", "no recording in it"), ("raw", "request.json")]
)
def test_what_is_not_there_is_named(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "response.raw").write_bytes(b"")
    with pytest.raises(BadRecording) as caught:
        load(tmp_path / name)
    assert says in caught.value.message
    assert name in caught.value.message


def test_raw_recordings_keep_bytes_reads_and_ends() -> None:
    root = recordings_root()
    (plain,) = load(root / "vllm" / "plain")
    assert plain.body == (root / "vllm" / "plain" / "response.raw").read_bytes()
    assert len(plain.pieces) == 51
    assert plain.ending.kind == "complete"
    assert plain.head is not None
    assert (plain.head.status, plain.head.header("content-type")) == (200, "text/event-stream; charset=utf-8")
    (abort,) = load(root / "vllm" / "abort")
    assert abort.ending.kind == "cut"
    (bad,) = load(root / "xllamacpp" / "err_bad_json")
    assert bad.asked.body == b'{"model": "x", "messages": ['


def test_every_raw_recording_can_be_read_and_written_anew() -> None:
    for recording in load(recordings_root()):
        (again,) = lines.decode(lines.encode(recording), recording.source)
        assert (again.pieces, again.head, again.ending) == (recording.pieces, recording.head, recording.ending)


def test_a_broken_raw_recording_is_named(tmp_path: Path) -> None:
    for name, text in {"request.json": "{}", "response.raw": "", "headers.txt": "HTTP/1.1", "timing.jsonl": ""}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadRecording) as caught:
        load(tmp_path)
    assert str(tmp_path) in caught.value.message
