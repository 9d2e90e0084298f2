"""Who called, as far as a record may say it: the program, and the address only where that is wanted.

Source: RFC 9110 section 10.1.5: a user-agent begins with its most significant product, `name/version`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from strom.core.record import CallRecord
from strom.transport.types import RequestHead

_PRODUCT = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}(?:/[A-Za-z]{2,24}(?![0-9A-Za-z]))?")
"""A name, and what stands for its version where that is a word: SDKs call themselves `OpenAI/Python 1.90.0`."""

_LONGEST_BYTES = 66
"""All that tells: 40, "/", 24, and the one that must not follow. What else stands there, of any length, is not remembered."""


def describe_caller(record: CallRecord, head: RequestHead, *, keep_peer: bool) -> None:
    agent = head.header(b"user-agent")
    record.client = _product(agent[:_LONGEST_BYTES]) if agent else None
    if keep_peer:
        record.peer = head.peer or None


@lru_cache(256)
def _product(agent: bytes) -> str | None:
    product = _PRODUCT.match(agent)
    return product.group().decode("ascii") if product is not None else None
