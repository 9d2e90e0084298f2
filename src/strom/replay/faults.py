"""Faults on request: their small language and what each of them means.

    SPEC  = FAULT *( ";" FAULT )
    FAULT = NAME [ "@" PLACE ] [ "=" VALUE ]
    PLACE = N (byte N of the recorded body) | N "t" (behind its N-th token)

`FAULTS` is the table of names; the parser, the documentation and the error messages follow from it. `every` and `retry-after`
qualify the other faults of a SPEC. A place behind the end of the body is its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from strom.core.errors import StromError

CUTS = ("close", "reset", "half")
_FAULT = re.compile(r"(?P<name>[a-z-]+)(?:@(?P<place>[^=]*))?(?:=(?P<value>.*))?")
_MAX_BYTES = 1 << 30
_FOR_EVER = -1.0


class BadFault(StromError):
    """A SPEC that cannot be read; the message says what is allowed."""

    code = "bad_fault"
    fault = "client"
    status = 400


class Place(msgspec.Struct, frozen=True):
    count: int
    in_tokens: bool = False


class Fault(msgspec.Struct, frozen=True):
    """`value` has the type that the row of `FAULTS` says."""

    name: str
    place: Place | None = None
    value: Any = None

    def __str__(self) -> str:
        place = "" if self.place is None else f"@{self.place.count}{'t' if self.place.in_tokens else ''}"
        return f"{self.name}{place}" + ("" if self.value in (None, _FOR_EVER) else f"={self.value}")


class _Kind(msgspec.Struct, frozen=True):
    """How a fault is written. `read` turns its value's text into one; None: it takes none. `default` None: it needs one."""

    meaning: str
    read: Callable[[str], Any] | None = None
    default: Any = None
    allowed: str = ""
    place: Literal["none", "optional", "needed"] = "none"


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return read


def _cut(text: str) -> str:
    if text not in CUTS:
        raise ValueError(text)
    return text


_SECONDS = "seconds, 0 to 86400"
_STATUS = "a status, 400 to 599"
FAULTS: dict[str, _Kind] = {
    "cut": _Kind("the connection ends there", _cut, "close", "close, reset or half", place="needed"),
    "stall": _Kind(
        "silence, then it goes on; without seconds for ever", _number(0, 86400), _FOR_EVER, _SECONDS, place="needed"
    ),
    "trickle": _Kind(
        "one byte at a time from there on", _number(0, 86400_000), 0.0, "milliseconds between bytes", place="optional"
    ),
    "garbage": _Kind(
        "so many random bytes are put in", _integer(1, _MAX_BYTES), 16, "a number of bytes", place="needed"
    ),
    "giant": _Kind(
        "a frame of so many bytes is put in", _integer(1, _MAX_BYTES), 1 << 24, "a number of bytes", place="needed"
    ),
    "no-terminator": _Kind("the frame that proves the end is left out"),
    "double-terminator": _Kind("it comes twice"),
    "gzip": _Kind("the body is compressed"),
    "status": _Kind("an error instead of the recorded answer", _integer(400, 599), None, _STATUS),
    "retry-after": _Kind("this header on the error", _number(0, 86400), None, _SECONDS),
    "html": _Kind("a page of HTML instead of the answer", _integer(200, 599), 502, "a status, 200 to 599"),
    "slow-head": _Kind("the head of the response waits", _number(0, 86400), None, _SECONDS),
    "tls": _Kind("a TLS handshake is refused (of the whole server only)"),
    "every": _Kind("only every K-th request (alone: status=503)", _integer(1, 1_000_000), None, "a count, 1 or more"),
}


class FaultSpec(msgspec.Struct, frozen=True):
    """What is done to an answer. `every` 1: to each."""

    faults: tuple[Fault, ...] = ()
    every: int = 1

    def __bool__(self) -> bool:
        return bool(self.faults)

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))

    def has(self, name: str) -> bool:
        return any(fault.name == name for fault in self.faults)

    def value(self, name: str) -> Any:
        """None when there is no such fault."""
        return next((fault.value for fault in self.faults if fault.name == name), None)

    def placed(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.place is not None)

    def for_request(self, number: int) -> FaultSpec:
        """Those that strike the request of this number; the first one has number 1."""
        return self if number % self.every == 0 else FaultSpec()


def parse_faults(specs: str | Iterable[str]) -> FaultSpec:
    """Raises BadFault."""
    texts = [specs] if isinstance(specs, str) else specs
    parts = [part.strip() for text in texts for part in text.split(";") if part.strip()]
    faults = [_parse(part) for part in parts]
    every = next((fault.value for fault in faults if fault.name == "every"), 1)
    rest = tuple(fault for fault in faults if fault.name != "every")
    _check_together(rest)
    if not rest and len(faults) > 0:
        rest = (Fault("status", None, 503),)
    return FaultSpec(rest, every)


def _parse(text: str) -> Fault:
    match = _FAULT.fullmatch(text)
    kind = FAULTS.get(match["name"]) if match is not None else None
    if match is None or kind is None:
        raise BadFault(f"fault {text!r}: no such fault; there are {', '.join(FAULTS)}")
    if match["place"] is not None and kind.place == "none":
        raise BadFault(f"fault {text!r}: {match['name']} takes no place (@…)")
    if match["place"] is None and kind.place == "needed":
        raise BadFault(f"fault {text!r}: say where: {match['name']}@120 (bytes) or {match['name']}@5t (tokens)")
    place = "0" if match["place"] is None else match["place"]
    return Fault(
        match["name"], None if kind.place == "none" else _place(text, place), _value(text, kind, match["value"])
    )


def _place(text: str, place: str) -> Place:
    in_tokens = place.endswith("t")
    digits = place[:-1] if in_tokens else place
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        raise BadFault(f"fault {text!r}: the place is a number of bytes (@120) or of tokens (@5t)")
    return Place(int(digits), in_tokens)


def _value(text: str, kind: _Kind, value: str | None) -> Any:
    if value is None:
        if kind.read is not None and kind.default is None:
            raise BadFault(f"fault {text!r}: it needs a value: {kind.allowed}")
        return kind.default
    if kind.read is None:
        raise BadFault(f"fault {text!r}: it takes no value")
    try:
        return kind.read(value)
    except ValueError:
        raise BadFault(f"fault {text!r}: the value is {kind.allowed}") from None


def _check_together(faults: tuple[Fault, ...]) -> None:
    names = [fault.name for fault in faults]
    twice = next((name for name in names if names.count(name) > 1 and name not in ("stall", "garbage", "giant")), None)
    if twice is not None:
        raise BadFault(f"fault {twice!r} stands there twice")
    if "retry-after" in names and "status" not in names:
        raise BadFault("fault 'retry-after' goes with a status: status=429; retry-after=3")
    if "no-terminator" in names and "double-terminator" in names:
        raise BadFault("faults 'no-terminator' and 'double-terminator' exclude each other")
    if "status" in names and "html" in names:
        raise BadFault("faults 'status' and 'html' exclude each other: html=503 is a page with that status")
