"""Logging: both formats, and no key in either."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from strom.logs import REDACTOR, Redactor, set_up_logging

LOG = logging.getLogger("strom.test")


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("strom")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def logged(log_format: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level, log_format, ["up-secret", "up-secret-long", "abc", ""], stream)
    return stream


def test_console() -> None:
    stream = logged("console")
    LOG.info("hello %s", "there")
    LOG.debug("too much")
    line = stream.getvalue()
    assert line.endswith("Z INFO    strom.test: hello there\n")
    assert line.count("\n") == 1


def test_json() -> None:
    stream = logged("json", "debug")
    LOG.debug('say "%s"', "ä")
    fields = json.loads(stream.getvalue())
    assert fields.pop("time").endswith("Z")
    assert fields == {"level": "debug", "logger": "strom.test", "message": 'say "ä"'}


FORGED = "x\n2026-01-01T00:00:00.000Z ERROR   strom: forged\r\x1b[2J\x9b2J\u2028y\x85z"


def test_no_text_can_forge_a_line_or_command_a_terminal() -> None:
    stream = logged("console")
    LOG.warning("said %s", FORGED)
    text = stream.getvalue()
    first, second, rest = text.split("\n")
    assert first.endswith("said x")
    assert second.startswith("    2026-01-01"), "indented: no record of its own"
    assert second.endswith(r"forged\u000d\u001b[2J\u009b2J\u2028y\u0085z")
    assert rest == ""


def test_one_json_object_is_one_line_to_every_reader() -> None:
    stream = logged("json")
    LOG.warning("said %s", FORGED)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x9b" not in stream.getvalue()
    assert json.loads(stream.getvalue())["message"] == f"said {FORGED}"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_registered_keys_are_in_no_line(log_format: str) -> None:
    stream = logged(log_format)
    LOG.warning("key up-secret, %s", {"authorization": "Bearer up-secret-long"}, stack_info=True)
    try:
        raise ValueError("up-secret in an error")
    except ValueError:
        LOG.exception("failed with up-secret")
    text = stream.getvalue()
    assert "up-secret" not in text
    assert "key ***, {'authorization': 'Bearer ***'}" in text
    assert "ValueError: *** in an error" in text


def test_what_is_too_short_to_be_a_key_stays() -> None:
    stream = logged("console")
    LOG.info("abc")
    assert stream.getvalue().endswith(": abc\n")


def test_setting_up_again_replaces_the_handler() -> None:
    first, second = logged("console"), logged("console")
    LOG.info("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)
    assert len(logging.getLogger().handlers) == 1


def test_a_text_can_be_redacted_directly() -> None:
    redactor = Redactor()
    redactor.register("secret-1")
    redactor.register("secret-1")
    assert redactor.redact("a secret-1 b") == "a *** b"
    assert REDACTOR is not redactor


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_what_looks_like_a_key_is_in_no_line(log_format: str) -> None:
    stream = logged(log_format)
    LOG.info("asked for the model %r", "sk-strom-abcdefgh-0123456789_ABCDEF")
    LOG.info("the task-force and sk-short stay")
    text = stream.getvalue()
    assert "0123456789" not in text
    assert "***" in text
    assert "the task-force and sk-short stay" in text


@pytest.mark.parametrize(("level", "heard"), [("debug", 3), ("info", 1), ("warning", 1), ("error", 0)])
def test_other_libraries_speak_from_warning_on(level: str, heard: int) -> None:
    stream = logged("console", level)
    other = logging.getLogger("alembic.runtime")
    other.debug("one")
    other.info("two")
    other.warning("three")
    assert stream.getvalue().count("\n") == heard
