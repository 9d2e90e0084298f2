"""The plain stream: status, headers, frames, order, end, usage."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import ssl

import msgspec

from strom.conformance.checks.findings import failed, judge, new_flaws, noted, passed, require_end, skipped
from strom.conformance.reading import Reading
from strom.conformance.report import Finding
from strom.conformance.session import PLAIN, NotJudged, Session

USAGE_ASKED = msgspec.structs.replace(PLAIN, usage=True)


async def status(session: Session) -> Finding:
    answer = await session.stream(PLAIN)
    return passed("200") if answer.capture.status == 200 else failed(answer.refusal)


async def headers(session: Session) -> Finding:
    capture = (await session.good_stream(PLAIN)).capture
    media_type = capture.header(b"content-type")
    if media_type.partition(";")[0].strip().lower() != session.dialect.media_type:
        return failed(f"content-type is {media_type or 'missing'}, not {session.dialect.media_type}")
    if session.dialect.media_type == "text/event-stream" and not capture.header(b"cache-control"):
        return noted(f"{media_type}; no cache-control: a proxy on the way may keep or gather the stream")
    return passed(media_type)


async def compression(session: Session) -> Finding:
    """Looked at with a plain HTTP client: the transport takes a coding away before anybody sees it."""
    await session.good_stream(PLAIN)
    try:
        coding = await asyncio.to_thread(_coding_of_a_stream, session)
    except (OSError, http.client.HTTPException) as error:
        return skipped(f"no second connection: {error}")
    return failed(f"content-encoding is {coding}") if coding else passed("none, although gzip was offered")


async def framing(session: Session) -> Finding:
    reading = (await session.good_stream(PLAIN)).reading
    return judge(reading, ("framing",), "every frame is whole, and JSON")


async def shape(session: Session) -> Finding:
    reading = (await session.good_stream(PLAIN)).reading
    if reading.error is not None:
        return failed(f"an error in the stream: {reading.error}")
    return judge(reading, ("shape",), "the fields are there")


async def order(session: Session) -> Finding:
    return judge((await session.good_stream(PLAIN)).reading, ("order",), "events come in their order")


async def role(session: Session) -> Finding:
    return judge((await session.good_stream(PLAIN)).reading, ("role",), "assistant, where it belongs")


async def constants(session: Session) -> Finding:
    return judge((await session.good_stream(PLAIN)).reading, ("constants",), "the same on every frame")


async def finish(session: Session) -> Finding:
    reading = await _ended(session)
    return judge(reading, ("finish",), str(reading.finish))


async def terminator(session: Session) -> Finding:
    return judge(await _ended(session), ("terminator",), "once, and last")


async def end(session: Session) -> Finding:
    capture = (await session.good_stream(PLAIN)).capture
    match capture.end:
        case "framed":
            return passed("the body is complete by its framing")
        case "closed":
            return noted("the body ends by closing the connection: a cut looks the same")
        case "cut":
            return failed(f"the body is cut off: {capture.failure}")
        case _:
            return failed(f"the body did not end within {session.endpoint.timeout_s:g} s")


async def usage(session: Session) -> Finding:
    reading = await _ended(session)
    counts = f"{reading.input_tokens} in, {reading.output_tokens} out"
    reported = reading.output_tokens is not None
    return judge(reading, ("usage",), counts if reported else "none, and none was asked for")


async def usage_asked(session: Session) -> Finding:
    answer = await session.stream(USAGE_ASKED)
    if answer.capture.status != 200:
        return failed(f"stream_options is refused: {answer.refusal}")
    counts = f"{answer.reading.input_tokens} in, {answer.reading.output_tokens} out"
    broken = await new_flaws(session, answer)
    return failed(broken) if broken else judge(answer.reading, ("usage",), counts)


async def generate(session: Session) -> Finding:
    """Ollama's other endpoint, which has `response` where chat has `message`."""
    from strom.conformance.framing import split_lines
    from strom.conformance.grammar.ollama import StreamJudge

    body = {"model": session.model, "prompt": PLAIN.prompt, "options": {"num_predict": 16, "temperature": 0}}
    capture = await session.post("/api/generate", body)
    if capture.status == 404:
        return skipped("not there (404)")
    if capture.status != 200:
        return failed(f"answered {capture.status}")
    reading = StreamJudge("response").read(split_lines(capture))
    if reading.error is not None:
        return failed(f"an error in the stream: {reading.error}")
    broken = "; ".join(text for _, text in reading.broken)
    return failed(broken) if broken else passed(f"{len(reading.tokens)} deltas, {reading.finish}")


async def _ended(session: Session) -> Reading:
    """Raises NotJudged for a stream that ended with an error, or did not end."""
    answer = await session.good_stream(PLAIN)
    require_end(session, answer)
    reading = answer.reading
    if reading.error is not None:
        raise NotJudged("the stream ended with an error")
    return reading


def _coding_of_a_stream(session: Session) -> str:
    origin, timeout_s = session.endpoint.base.origin, session.endpoint.timeout_s
    connection: http.client.HTTPConnection
    if origin.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(origin.host, origin.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(origin.host, origin.port, timeout=timeout_s)
    offered = {name.decode(): value.decode("latin-1") for name, value in session.headers()}
    offered["accept-encoding"] = "gzip, deflate, br, zstd"
    body = json.dumps(session.body(msgspec.structs.replace(PLAIN, max_tokens=16), stream=True))
    with contextlib.closing(connection):
        target = session.endpoint.base.target(session.dialect.path)
        connection.request("POST", target, body.encode(), offered)
        return (connection.getresponse().getheader("content-encoding") or "").replace("identity", "")
