"""From readings to findings: what is broken fails, what is odd is a note."""

from __future__ import annotations

from strom.conformance.reading import Reading, Topic
from strom.conformance.report import Finding


def passed(detail: str) -> Finding:
    return Finding("pass", detail)


def failed(detail: str) -> Finding:
    return Finding("fail", detail)


def noted(detail: str) -> Finding:
    return Finding("note", detail)


def skipped(detail: str) -> Finding:
    return Finding("skip", detail)


def judge(reading: Reading, topics: tuple[Topic, ...], good: str) -> Finding:
    """What a reading says on these topics; `good` when it says nothing."""
    broken = [text for topic, text in reading.broken if topic in topics]
    odd = [text for topic, text in reading.odd if topic in topics]
    if broken:
        return failed("; ".join(broken))
    return noted("; ".join(odd)) if odd else passed(good)


def flaws(reading: Reading) -> str:
    """Every broken rule of an answer that is looked at for something else; "" for none."""
    return "; ".join(text for _, text in reading.broken)
