"""The recordings are there, and read as their index says. The guard for tests that are parametrized over them."""

from __future__ import annotations

from tests.recordings import index, load, names, recordings_root


def test_the_recordings_are_there() -> None:
    assert recordings_root().is_dir()
    assert len(index()) >= 250
    assert names(protocol="chat", streamed=True)


def test_a_recording_holds_request_response_and_pieces() -> None:
    recording = load("xllamacpp", "plain")
    assert recording.request["method"] == "POST"
    assert recording.status_line.startswith("HTTP/1.1 200")
    assert ("server", "llama.cpp") in recording.headers
    assert b"".join(recording.chunks) == recording.response
    assert len(recording.response) == recording.index["bytes"]
