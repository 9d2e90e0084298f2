"""How long an upstream may take: whole sets of clocks, and what a model or a caller changes in one.

A provider has a `Timeouts`. A model may name some of its own, which replace the provider's. A caller may only be less patient:
its wishes move a clock downwards and the throughput floor upwards, never the other way.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from strom.core.errors import BadRequest, TimedOut

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Rate = Annotated[float, msgspec.Meta(ge=0)]
HEADER = b"x-strom-timeouts"
MAX_HEADER = 512


class Timeouts(msgspec.Struct, frozen=True):
    connect_s: Seconds = 5.0
    first_token_s: Seconds = 120.0
    """From dispatch to the first token-bearing frame."""
    idle_s: Seconds = 60.0
    """Between frames; heartbeats do not reset it."""
    total_s: Seconds | None = None
    """From the first dispatch of a call to its end, retries included. None: no limit."""
    min_chars_per_s: Rate = 0.0
    """After the first token, at least so many characters of output a second, on the average of each window. 0: any."""
    throughput_window_s: Seconds = 30.0


class SomeTimeouts(msgspec.Struct, frozen=True):
    """A part of a set. None: as it was."""

    connect_s: Seconds | None = None
    first_token_s: Seconds | None = None
    idle_s: Seconds | None = None
    total_s: Seconds | None = None
    min_chars_per_s: Rate | None = None
    throughput_window_s: Seconds | None = None

    def replacing(self, base: Timeouts) -> Timeouts:
        """What a model says in place of its provider."""
        named = {name: value for name, value in _fields(self) if value is not None}
        return msgspec.structs.replace(base, **named)

    def tightening(self, base: Timeouts) -> Timeouts:
        """What a caller asks for, as far as it is less patient."""
        changed: dict[str, float] = {}
        for name, wanted in _fields(self):
            allowed = getattr(base, name)
            if wanted is None or name == "throughput_window_s":
                continue
            if name == "min_chars_per_s":
                changed[name] = max(wanted, allowed)
            else:
                changed[name] = wanted if allowed is None else min(wanted, allowed)
        return msgspec.structs.replace(base, **changed)


# --- what is said when one has run out; `who` is the upstream, as the caller knows it ---------------


def no_first_token(who: str, timeouts: Timeouts) -> TimedOut:
    return TimedOut(f"{who} gave no token within {timeouts.first_token_s:g} s.", code="first_token_timeout")


def silent(who: str, timeouts: Timeouts) -> TimedOut:
    return TimedOut(f"{who} was silent for {timeouts.idle_s:g} s in the middle of its answer.", code="idle_timeout")


def too_slow(who: str, rate: float, timeouts: Timeouts) -> TimedOut:
    """`rate`: characters a second."""
    floor = timeouts.min_chars_per_s
    return TimedOut(f"{who} gave {rate:.3g} characters a second, fewer than {floor:g}.", code="throughput_timeout")


def too_long(total_s: float) -> TimedOut:
    """No other attempt has time left either."""
    error = TimedOut(f"The call took longer than the {total_s:g} s it may take.", code="total_timeout")
    error.retryable = False
    return error


def _fields(some: SomeTimeouts) -> list[tuple[str, float | None]]:
    return [(name, getattr(some, name)) for name in SomeTimeouts.__struct_fields__]


def parse_wishes(value: bytes) -> SomeTimeouts:
    """`first_token_s=10, idle_s=5, total_s=60`, the value of the header. Raises BadRequest."""
    known = ", ".join(name for name in SomeTimeouts.__struct_fields__ if name != "throughput_window_s")
    wishes: dict[str, float] = {}
    try:
        if len(value) > MAX_HEADER:
            raise ValueError
        for pair in value.decode("ascii").split(","):
            name, _, number = pair.strip().partition("=")
            if name.strip() not in known.split(", ") or name in wishes:
                raise ValueError
            wishes[name.strip()] = float(number)
        if any(wish in (float("inf"),) for wish in wishes.values()):
            raise ValueError
        return msgspec.convert(wishes, SomeTimeouts)
    except ValueError:  # UnicodeDecodeError and ValidationError are ValueErrors
        raise BadRequest(
            f"x-strom-timeouts: expected NAME=SECONDS pairs, separated by commas. Names: {known}."
        ) from None
