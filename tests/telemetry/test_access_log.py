"""One line a call, off the hot path, with nothing in it that does not belong there."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from strom.core.record import CallRecord, RecordError, RecordUsage, Timing
from strom.logs import REDACTOR, set_up_logging, write_lines
from strom.telemetry import access_log
from strom.telemetry.access_log import AccessLog, console_line, instant, json_line
from tests.patience import wait_until
from tests.telemetry.records import good


class Sink:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text)

    @property
    def lines(self) -> list[str]:
        return "".join(self.texts).splitlines()


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("strom")
    handlers, level, own_level = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(own_level)


def test_every_call_is_a_line_when_the_log_is_closed() -> None:
    sink = Sink()
    log = AccessLog(sink, "json")
    for index in range(1000):
        log.observe(good(trace_id=f"t{index}"))
    log.close()
    assert [json.loads(line)["trace_id"] for line in sink.lines] == [f"t{index}" for index in range(1000)]
    assert next(iter(log.readings()))[2] == 0


def test_lines_come_soon() -> None:
    sink = Sink()
    log = AccessLog(sink, "console")
    log.observe(good())
    wait_until(lambda: sink.texts)
    assert len(sink.lines) == 1
    log.close()


def test_a_model_s_name_cannot_end_the_line(kept_handlers: None) -> None:
    name = "b/x\r\n2026 ERROR\x1b[2J\x9b2J\u2028y\x85z"
    stream = io.StringIO()
    set_up_logging("info", "json", (), stream)
    for word in (json_line, console_line):
        write_lines(word(good(model_requested=name)) + "\n")
    assert "\x9b" not in stream.getvalue()
    first, second = stream.getvalue().splitlines()
    assert json.loads(first)["model"] == name
    assert "2026 ERROR" in second


def test_the_fields() -> None:
    assert json.loads(json_line(good(ended_at=1767225600.25))) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "info",
        "logger": "strom.access",
        "message": "call",
        "trace_id": "0123456789abcdef0123456789abcdef",
        "key": "ci",
        "protocol": "openai-chat",
        "model": "qwen3",
        "endpoint": "mlx-1",
        "status": "completed",
        "http_status": 200,
        "streamed": True,
        "input_tokens": 12,
        "output_tokens": 34,
        "cached_tokens": 5,
        "reasoning_tokens": 6,
        "ttft_ms": 120.0,
        "duration_ms": 1110.0,
        "bytes_out": 1234,
        "attempts": 1,
    }


def test_an_error_is_told_by_its_code_and_fault_alone() -> None:
    failed = good(fault="upstream", error=RecordError("upstream_error", "SENTINEL said the backend"), status="failed")
    for line in (json_line(failed), console_line(failed)):
        assert "upstream_error" in line
        assert "SENTINEL" not in line


def test_the_console_line() -> None:
    line = console_line(good(ended_at=1767225600.25))
    assert line == (
        "2026-01-01T00:00:00.250Z INFO    strom.access: 200 completed qwen3 at mlx-1, key ci, 12+34 tokens, "
        "first token 0.120 s, all 1.110 s, 1234 bytes (0123456789abcdef0123456789abcdef)"
    )


def test_a_call_of_which_nothing_is_known() -> None:
    bare = CallRecord("t", "rejected", 5.0, usage=RecordUsage(), timing=Timing())
    assert console_line(bare) == "1970-01-01T00:00:05.000Z INFO    strom.access: - rejected - at -, 0 bytes (t)"
    assert json.loads(json_line(bare))["model"] is None


@pytest.mark.parametrize("evil", ["a\nINFO strom: forged", "a\rb", "a\x1b[2Jb", "a b", "\u2028x"])
def test_a_model_name_cannot_forge_a_line(evil: str) -> None:
    for line in (json_line(good(model_requested=evil)), console_line(good(model_requested=evil))):
        assert len(line.splitlines()) == 1 or evil == "\u2028x"
        assert "\x1b" not in line
        assert "\n" not in line
        assert "\r" not in line
    assert len(json_line(good(model_requested="x" * 10_000))) < 1000


def test_what_nobody_takes_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MOST_WAITING", 3)
    monkeypatch.setattr(access_log, "PERIOD_S", 60)
    sink = Sink()
    log = AccessLog(sink, "json")
    for _ in range(5):
        log.observe(good())
    log.close()
    assert len(sink.lines) == 3
    assert next(iter(log.readings()))[2] == 2


def test_a_reader_that_has_gone_stops_nothing() -> None:
    def closed(text: str) -> None:
        raise BrokenPipeError

    log = AccessLog(closed, "json")
    log.observe(good())
    log.close()
    assert next(iter(log.readings()))[2] == 1


@pytest.mark.usefixtures("kept_handlers")
def test_lines_go_where_the_log_goes_without_keys(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json", ["sk-very-secret-key"])
    write_lines(json_line(good(model_requested="sk-very-secret-key")) + "\n")
    logging.getLogger().handlers.clear()
    write_lines("without a handler sk-very-secret-key\n")
    REDACTOR._secrets.remove("sk-very-secret-key")
    written = capsys.readouterr().err
    assert "sk-very-secret-key" not in written
    assert json.loads(written.splitlines()[0])["model"] == "***"
    assert written.endswith("without a handler ***\n")


def test_instants_keep_their_milliseconds() -> None:
    assert instant(1767225599.9996) == "2025-12-31T23:59:59.999Z"
