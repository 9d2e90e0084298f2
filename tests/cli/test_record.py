"""`strom record`: usage, what it says, and that it records until it is stopped."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from strom.replay import lines, load
from tests.cli.conftest import Strom
from tests.cli.programs import running
from tests.patience import PATIENCE_S
from tests.replay.recordings import BODY, CHAT, stream


def test_it_records_and_tells_and_what_it_wrote_can_be_replayed(tmp_path: Path) -> None:
    source, out = tmp_path / "one.jsonl", tmp_path / "out"
    source.write_bytes(lines.encode(stream()))
    with running("replay", str(source), "--port", "0") as backend:
        url = backend.until("Replaying").split()[-1]
        with running("record", "--backend", url, "--listen", "127.0.0.1:0", "--out", str(out)) as it:
            address = it.until("Recording ").split()[1]
            request = urllib.request.Request(address + CHAT, b'{"model": "m", "stream": true}')
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                assert response.read() == BODY
            line = it.until(f"POST {CHAT}  200 complete  ")
            assert line.endswith("0001-post-v1-chat-completions.jsonl\n")
            assert it.stop() == 0
    (made,) = load(out)
    assert made.body == BODY
    times = [piece.t_ms for piece in made.pieces]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "x"], "--backend"),
        (["--backend", "http://h"], "--out"),
        (["--backend", "ftp://h", "--out", "x"], "http:// or https://"),
        (["--backend", "http://h", "--out", "x", "--listen", "8080"], "HOST:PORT"),
        (["--backend", "http://h", "--out", "x", "--listen", "h:99999"], "HOST:PORT"),
    ],
)
def test_wrong_usage_is_2(strom: Strom, arguments: list[str], says: str) -> None:
    shown = strom("record", *arguments)
    assert shown.code == 2
    assert says in shown.err


def test_where_nothing_can_be_written_is_said(strom: Strom, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = strom("record", "--backend", "http://127.0.0.1:9", "--out", str(tmp_path / "file"))
    assert shown.code == 1
    assert "Cannot write to" in shown.err


def test_a_taken_port_is_said(strom: Strom, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f"127.0.0.1:{port}"
        shown = strom("record", "--backend", "http://127.0.0.1:9", "--out", str(tmp_path), "--listen", listen)
    assert shown.code == 1
    assert f"Cannot listen on {listen}" in shown.err
