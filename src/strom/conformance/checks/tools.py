"""Tools: are they taken, do calls come well-formed, streamed and whole, and can their results be given back?

A call is asked for in the ways the protocol has (`Dialect.tool_uses`), at last by letting the model copy one. A model that
does not call is no fault of the server: those checks are skipped.
"""

from __future__ import annotations

import json

from strom.conformance.checks.findings import failed, judge, new_flaws, noted, passed, skipped
from strom.conformance.dialects.dialect import ECHO, WEATHER, Ask, ToolUse
from strom.conformance.reading import Reading
from strom.conformance.report import Finding
from strom.conformance.session import NotJudged, Session

_LONGEST = 96


async def accepted(session: Session) -> Finding:
    answer = await session.stream(_asks(session)[-2])
    if answer.capture.status != 200:
        return failed(f"a request that offers a tool is refused: {answer.refusal}")
    if answer.reading.error is not None:
        return failed(f"an error in the stream: {answer.reading.error}")
    return passed("a request that offers a tool is answered")


async def choice(session: Session) -> Finding:
    """Whether `required` is obeyed."""
    if "required" not in session.dialect.tool_uses:
        return skipped("this protocol has no tool_choice")
    answer = await session.stream(_ask("required"))
    if answer.capture.status != 200:
        return noted(f"a forced call is refused: {answer.refusal}")
    if answer.reading.error is not None:
        return failed(f"an error in the stream: {answer.reading.error}")
    if answer.reading.calls:
        return passed("a forced call comes")
    if answer.reading.limited:
        return noted(f"a forced call did not begin within {_LONGEST} tokens of text")
    return noted("a forced call does not come: tool_choice is ignored")


async def call(session: Session) -> Finding:
    """The stream with a call, judged as a whole."""
    ask = await _calling(session)
    answer = await session.good_stream(ask)
    reading = answer.reading
    broken = await new_flaws(session, answer) or _call_flaws(reading, ask)
    if broken:
        return failed(broken)
    names = ", ".join(str(one.name) for one in reading.calls)
    return judge(reading, ("tools", "order"), f"{names}, the reason is {reading.finish}")


async def whole(session: Session) -> Finding:
    ask = await _calling(session)
    answer = await session.whole(ask)
    if answer.capture.status != 200:
        return failed(answer.refusal)
    broken = await new_flaws(session, answer) or _call_flaws(answer.reading, ask)
    if broken:
        return failed(broken)
    streamed = (await session.good_stream(ask)).reading
    ours, theirs = _shown(answer.reading), _shown(streamed)
    return passed(ours) if ours == theirs else noted(f"whole {ours}, streamed {theirs}")


async def result(session: Session) -> Finding:
    """Gives back the result of the call that came; of an invented one where none did."""
    identity, name, arguments = "call_1", "get_weather", '{"city": "Paris"}'
    try:
        made = (await session.good_stream(await _calling(session))).reading.calls[0]
        if not _call_flaw(made.arguments) and isinstance(made.name, str):
            identity, name, arguments = str(made.id or identity), made.name, made.arguments or "{}"
    except NotJudged:
        pass
    answer = await session.stream(Ask(prompt=WEATHER, tools="offered", call=(identity, name, arguments)))
    if answer.capture.status != 200:
        return failed(f"the result of a call is refused: {answer.refusal}")
    broken = answer.reading.error or await new_flaws(session, answer)
    return (
        failed(broken) if broken else passed(f"the result of a call is answered, the reason is {answer.reading.finish}")
    )


def _ask(use: ToolUse, prompt: str = WEATHER) -> Ask:
    return Ask(prompt=prompt, max_tokens=_LONGEST, tools=use)


def _asks(session: Session) -> list[Ask]:
    """Ways to get a call, best first; the last but one is always the plain offer."""
    return [*(_ask(use) for use in session.dialect.tool_uses), _ask("offered", ECHO)]


async def _calling(session: Session) -> Ask:
    """The first question that is answered with a call. Raises NotJudged."""
    for ask in _asks(session):
        answer = await session.stream(ask)
        if answer.capture.status == 200 and answer.reading.calls:
            return ask
    raise NotJudged("the model does not call the tool, however it is asked")


def _call_flaws(reading: Reading, ask: Ask) -> str:
    """What is wrong with the calls, beyond the form of the frames.

    A call that was forced by name may end with `stop`. Source: platform.openai.com, Function calling (tool_choice).
    """
    if reading.error is not None:
        return f"an error: {reading.error}"
    if not reading.calls:
        return "no call, although the same question streamed has one"
    if reading.limited:
        return ""  # cut off in the middle: its arguments cannot be whole
    found = [flaw for one in reading.calls if (flaw := _call_flaw(one.arguments))]
    if reading.ended_for_tools is False and ask.tools != "named":
        found.append(f"there is a call, yet the reason is {reading.finish}")
    ids = [one.id for one in reading.calls if one.id is not None]
    if len(set(map(str, ids))) != len(ids):
        found.append("two calls have the same id")
    return "; ".join(found)


def _call_flaw(arguments: str) -> str:
    """No text at all is read as {} by every tested client."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return f"the arguments are no JSON: {arguments[:60]!r}"
    return "" if isinstance(value, dict) else f"the arguments are no object: {arguments[:60]!r}"


def _shown(reading: Reading) -> str:
    return ", ".join(f"{one.name}({_canonical(one.arguments)})" for one in reading.calls)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except ValueError:
        return arguments
