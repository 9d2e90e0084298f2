"""Thinking, in whatever answers have come so far: nothing is asked for it."""

from __future__ import annotations

from strom.conformance.checks.findings import failed, noted, passed, skipped
from strom.conformance.reading import Reading
from strom.conformance.report import Finding
from strom.conformance.session import Session


async def thinking(session: Session) -> Finding:
    readings = [answer.reading for answer in (*session.streams(), *session.wholes())]
    thoughtful = [reading for reading in readings if reading.thinking]
    if any(_has_leftover(reading) for reading in thoughtful):
        return failed("thinking has its own field, and a tag of it is left in the text")
    broken = [text for reading in readings for topic, text in reading.broken if topic == "thinking"]
    if broken:
        return failed(broken[0])
    if not thoughtful:
        tagged = any(_has_leftover(reading) for reading in readings)
        return noted("thinking stands in the text, between tags") if tagged else skipped("no answer has any")
    odd = [text for reading in thoughtful for topic, text in reading.odd if topic == "thinking"]
    return noted(odd[0]) if odd else passed(f"{len(thoughtful[0].thinking)} characters, apart from the text")


def _has_leftover(reading: Reading) -> bool:
    begin = reading.text.lstrip()[:20]
    return begin.startswith("<think>") or "</think>" in reading.text
