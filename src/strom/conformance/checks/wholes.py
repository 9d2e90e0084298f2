"""The whole reply, and whether it agrees with the stream; limits and stop sequences."""

from __future__ import annotations

import re

import msgspec

from strom.conformance.checks.findings import failed, judge, new_flaws, noted, passed, skipped
from strom.conformance.dialects.dialect import Ask
from strom.conformance.reading import Reading, parse_body
from strom.conformance.report import Finding
from strom.conformance.session import PLAIN, Answer, Session

LIMIT = 16
"""The least that OpenAI's Responses accept as max_output_tokens."""


async def status(session: Session) -> Finding:
    capture = (answer := await session.whole(PLAIN)).capture
    if capture.status != 200:
        return failed(answer.refusal)
    if parse_body(capture.body) is None:
        return failed(f"the body is no JSON object: {capture.body[:60].decode(errors='replace')}")
    media_type = capture.header(b"content-type")
    if media_type.partition(";")[0].strip().lower() != "application/json":
        return failed(f"content-type is {media_type or 'missing'}, not application/json")
    return passed("200, application/json")


async def shape(session: Session) -> Finding:
    reading = (await session.good_whole(PLAIN)).reading
    if reading.error is not None:
        return failed(f"an error with status 200: {reading.error}")
    return judge(reading, ("shape", "role", "constants", "finish"), "the fields are there")


async def usage(session: Session) -> Finding:
    reading = (await session.good_whole(PLAIN)).reading
    return judge(reading, ("usage",), f"{reading.input_tokens} in, {reading.output_tokens} out")


async def agrees(session: Session) -> Finding:
    """At temperature 0; a server may still draw, so different texts prove nothing."""
    streamed = (await session.good_stream(PLAIN)).reading
    whole = (await session.good_whole(PLAIN)).reading
    if streamed.finish is None or whole.finish is None:
        return skipped("one of them has no reason: it may be cut off")
    if bool(streamed.thinking) != bool(whole.thinking):
        having, lacking = ("stream", "whole reply") if streamed.thinking else ("whole reply", "stream")
        return failed(f"the {having} has thinking, the {lacking} has none")
    if (streamed.text, streamed.thinking) != (whole.text, whole.thinking):
        one_empty = bool(streamed.text) != bool(whole.text)
        seen = f"streamed {streamed.text[:40]!r}, whole {whole.text[:40]!r}"
        return failed(seen) if one_empty else noted(f"the texts differ, so nothing can be compared: {seen}")
    if streamed.finish != whole.finish:
        return failed(f"the same text ends with {streamed.finish} streamed and with {whole.finish} whole")
    counted = streamed.output_tokens is not None and whole.output_tokens is not None
    if counted and streamed.output_tokens != whole.output_tokens:
        return failed(f"the same text counts {streamed.output_tokens} tokens streamed and {whole.output_tokens} whole")
    return passed("text and reason are the same")


async def length(session: Session) -> Finding:
    ask = Ask(max_tokens=LIMIT)
    return await _limited(session, await session.good_stream(ask))


async def whole_length(session: Session) -> Finding:
    ask = Ask(max_tokens=LIMIT)
    return await _limited(session, await session.good_whole(ask))


async def _limited(session: Session, answer: Answer) -> Finding:
    reading = answer.reading
    broken, spent = await new_flaws(session, answer), reading.output_tokens
    spent = spent if spent is not None else len(reading.tokens)
    if broken:
        return failed(broken)
    if spent > LIMIT + 1:
        return failed(f"{spent} tokens came where {LIMIT} were allowed; the reason is {reading.finish}")
    if reading.limited:
        return passed(f"{reading.finish} after {spent} tokens")
    if spent >= LIMIT:
        return failed(f"the limit of {LIMIT} tokens was used up, yet the reason is {reading.finish}")
    return skipped(f"the model ended by itself after {spent} tokens ({reading.finish})")


async def stop(session: Session) -> Finding:
    """Asks the same question again, with a piece of its own answer as the stop sequence."""
    if not session.dialect.stops:
        return skipped("this protocol has no stop sequences")
    plain = (await session.good_stream(PLAIN)).reading
    sequence = _stop_in(plain)
    if sequence is None:
        return skipped("the plain answer is too short to choose a stop sequence from")
    answer = await session.stream(msgspec.structs.replace(PLAIN, stop=sequence))
    if answer.capture.status == 400:
        return noted(f"stop sequences are refused: {answer.refusal}")
    if answer.capture.status != 200:
        return failed(answer.refusal)
    broken = await new_flaws(session, answer)
    return failed(broken) if broken else _stopped(plain.text, answer.reading, sequence)


def _stop_in(plain: Reading) -> str | None:
    """A word (or a piece of one) from the middle of an answer, that stands nowhere before."""
    text = plain.text
    for pattern in (r"\b\w{3,12}\b", r"\w{3}"):
        for match in re.finditer(pattern, text[: len(text) - 2]):
            if match.start() >= len(text) // 3 and text.find(match[0]) == match.start():
                return match[0]
    return None


def _stopped(plain: str, reading: Reading, sequence: str) -> Finding:
    text, expected = reading.text, plain[: plain.find(sequence)]
    if text == plain:
        return noted(f"the stop sequence {sequence!r} is ignored: the text goes on after it")
    if text.endswith(sequence):
        return failed(f"the stop sequence {sequence!r} is part of the text")
    if text.startswith(expected) and len(text) > len(expected) and sequence not in text:
        return failed(f"{sequence!r} was taken out, but the text goes on after it: {text[-40:]!r}")
    if sequence in text:
        return failed(f"the text goes on after the stop sequence {sequence!r}")
    if reading.limited:
        return failed(f"stopped at {sequence!r}, yet the reason is {reading.finish}")
    if text.rstrip() != expected.rstrip():
        return noted(f"the texts differ, so nothing can be compared: {text[-40:]!r}, expected {expected[-40:]!r}")
    return passed(f"stopped before {sequence!r}, the reason is {reading.finish}")
