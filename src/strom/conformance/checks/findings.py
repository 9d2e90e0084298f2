"""From readings to findings: what is broken fails, what is odd is a note."""

from __future__ import annotations

from strom.conformance.reading import Reading, Topic
from strom.conformance.report import Finding
from strom.conformance.session import PLAIN, Answer, NotJudged, Session


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


async def new_flaws(session: Session, answer: Answer) -> str:
    """The rules an answer breaks that the plain one of its kind keeps (that one has its own checks); "" for none.

    Raises NotJudged for an answer that was not waited for to its end.
    """
    require_end(session, answer)
    plain = await (session.stream(PLAIN) if answer.streamed else session.whole(PLAIN))
    return "; ".join(text for topic, text in answer.reading.broken if (topic, text) not in plain.reading.broken)


def require_end(session: Session, answer: Answer) -> None:
    """Raises NotJudged when we left before the end: a slow answer breaks no rule of form."""
    if answer.capture.end == "timeout":
        raise NotJudged(f"the answer did not end within {session.endpoint.timeout_s:g} s")
