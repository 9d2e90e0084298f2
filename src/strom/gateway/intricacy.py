"""How much there may be in a request's body besides text: arrays and objects, each of which costs far more than its bytes.

A few megabytes of tiny ones would keep the process from everything else for seconds. Text is not counted, whatever it holds:
strings are left out before brackets are counted, and that only where there are many brackets at all. Work is linear, and
bounded by the number of quotation marks.
"""

from __future__ import annotations

import re

from strom.core.errors import BadRequest

MAX_CONTAINERS = 50_000
"""Ten times what long sessions of coding agents with all their tools have."""
MAX_QUOTES = 2_000_000
_SMALL_BYTES = 262_144
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, also one without its end: then to the end of the body, so that none is looked at twice."""


def refuse_intricacy(body: bytes) -> None:
    """Raises BadRequest."""
    if len(body) <= _SMALL_BYTES or _brackets(body) <= MAX_CONTAINERS:
        return
    if body.count(b'"') > MAX_QUOTES or _brackets(_STRING.sub(b"", body)) > MAX_CONTAINERS:
        raise BadRequest(f"The request holds more than {MAX_CONTAINERS} JSON arrays and objects.")


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")
