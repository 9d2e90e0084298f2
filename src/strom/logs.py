"""Logging: to stderr, as lines for people or as JSON, and never with a key in it.

Every key that a process knows is registered here; the handler removes registered keys, and whatever else looks like one, from
the finished text of each record, the traceback included, so no call site can forget it. Only the standard library: anything may
import this.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO

_REDACTED = "***"
_KEY_SHAPED = re.compile(r"\bsk-[A-Za-z0-9_-]{16,}")
"""Keys that this process does not know in the clear: managed ones, and those that somebody sent in a wrong place."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What a terminal obeys or a reader of lines takes for an end of one, but for LF and tab."""
_SHORTEST = 4
"""A shorter "key" would garble the log and protect nothing."""


class Redactor(logging.Filter):
    """Replaces registered secrets in the message and the traceback of every record that passes."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: list[str] = []

    def register(self, secret: str) -> None:
        if len(secret) >= _SHORTEST and secret not in self._secrets:
            self._secrets.append(secret)
            self._secrets.sort(key=len, reverse=True)

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _REDACTED)
        return _KEY_SHAPED.sub(_REDACTED, text) if "sk-" in text else text

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self.redact(record.getMessage())
        record.args = None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self.redact(record.exc_text)
        if record.stack_info:
            record.stack_info = self.redact(record.stack_info)
        return True


REDACTOR = Redactor()


def visible(text: str) -> str:
    """With escapes for what could forge or hide a line, as they stand in JSON."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class ConsoleFormatter(logging.Formatter):
    """2026-03-01T12:00:00.123Z INFO    strom.stores: text

    Lines after the first are indented: none of them can pass for a record of its own.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        return _instant(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return super().formatMessage(record).replace("\n", "\n    ")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_text:
            fields["exception"] = record.exc_text
        return visible(json.dumps(fields, ensure_ascii=False))


def set_up_logging(level: str, log_format: str, secrets: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Level: debug, info, warning, error. Format: console or json. May be called again, for a changed configuration.

    The level is that of our own words. Other libraries speak from warning on, unless it is debug.
    """
    for secret in secrets:
        REDACTOR.register(secret)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(REDACTOR)
    handler.setFormatter(JsonFormatter() if log_format == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING" if level == "info" else level.upper())
    logging.getLogger("strom").setLevel(level.upper())


def write_lines(text: str) -> None:
    """Lines that are worded already, to where the log goes: redacted like all others, and never amid another line."""
    text = visible(REDACTOR.redact(text))
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            with handler.lock or nullcontext():
                handler.stream.write(text)
                handler.stream.flush()
            return
    sys.stderr.write(text)
    sys.stderr.flush()


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
