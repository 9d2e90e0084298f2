"""`strom replay`: usage, what it says, and that it serves until it is stopped."""

from __future__ import annotations

import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from strom.replay import lines
from strom.replay.faults import FAULTS
from tests.cli.conftest import Strom
from tests.cli.programs import running
from tests.patience import PATIENCE_S
from tests.replay.recordings import BODY, CHAT, stream


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.jsonl"
    path.write_bytes(lines.encode(stream()))
    return path


def post(url: str, **headers: str) -> bytes:
    request = urllib.request.Request(
        url, b'{"model": "m", "stream": true}', {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        found: bytes = response.read()
        return found


def test_it_serves_tells_and_stops(file: Path) -> None:
    with running(
        "replay", str(file), "--port", "0", "--no-timing", "--fault", "every=2; status=429; retry-after=1"
    ) as it:
        url = it.until("Replaying 1 recording on ").split()[-1]
        it.until("Models: m")
        assert post(url + CHAT) == BODY
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(url + CHAT)
        assert (caught.value.code, caught.value.headers["retry-after"]) == (429, "1")
        with pytest.raises(urllib.error.HTTPError):
            post(url + CHAT, **{"x-strom-fault": "html=500"})
        it.until(f"POST {CHAT}  500  [html=500]")
        assert it.stop() == 0
    assert f"POST {CHAT}  200  {file}\n" in it.output
    assert "Traceback" not in it.output


def test_sigterm_stops_it_too(file: Path) -> None:
    with running("replay", str(file), "--port", "0") as it:
        it.until("Replaying")
        assert it.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        (["--speed", "0"], "--speed"),
        (["--speed", "2", "--no-timing"], "exclude each other"),
        (["--fault", "frob"], "no such fault; there are cut, stall"),
        (["--port", "70000"], "--port"),
    ],
)
def test_wrong_usage_is_2(strom: Strom, file: Path, arguments: list[str], says: str) -> None:
    shown = strom("replay", *([str(file)] if arguments else []), *arguments)
    assert shown.code == 2
    assert says in shown.err


def test_what_is_no_recording_is_1(strom: Strom, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}")
    for name, says in (("bad.jsonl", "line 1"), ("missing.jsonl", "No such file")):
        shown = strom("replay", str(tmp_path / name))
        assert shown.code == 1
        assert says in shown.err
        assert "Traceback" not in shown.err


def test_a_taken_port_is_said(strom: Strom, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        shown = strom("replay", str(file), "--port", port)
    assert shown.code == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in shown.err


def test_help_and_documentation_name_every_fault(strom: Strom) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "record-and-replay.md").read_text()
    shown = strom("replay", "--help").out
    for name in FAULTS:
        assert re.search(rf"(?<![a-z-]){name}(?![a-z-])", shown), name
        assert f"`{name}" in page, name
