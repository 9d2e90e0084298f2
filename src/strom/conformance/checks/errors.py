"""Refusals: each mistake has to be answered with a status of the client's and a body in the protocol's shape."""

from __future__ import annotations

from strom.conformance.asking import Capture
from strom.conformance.checks.findings import failed, noted, passed
from strom.conformance.dialects.dialect import NO_SUCH_MODEL
from strom.conformance.reading import parse_body
from strom.conformance.report import Finding
from strom.conformance.session import Session, refusal_of


async def malformed(session: Session) -> Finding:
    capture = await session.post(session.dialect.path, b'{"model": "m", "messages": [')
    return _judge(session, capture, (400,))


async def fields(session: Session) -> Finding:
    return _judge(session, await session.post(session.dialect.path, session.dialect.mistaken(session.model, "fields")))


async def types(session: Session) -> Finding:
    return _judge(session, await session.post(session.dialect.path, session.dialect.mistaken(session.model, "types")))


async def model(session: Session) -> Finding:
    capture = await session.post(session.dialect.path, session.dialect.mistaken(session.model, "model"))
    if capture.status == 200:
        return noted(f"the model {NO_SUCH_MODEL!r} is answered: the server takes any name")
    return _judge(session, capture, (404,))


def _judge(session: Session, capture: Capture, expected: tuple[int, ...] = (400, 422)) -> Finding:
    said = refusal_of(capture)
    if capture.end in ("none", "timeout"):
        return failed(said)
    if capture.status < 400:
        return failed(f"accepted with {capture.status}")
    if capture.status >= 500:
        return failed(f"a client's mistake is answered as the server's: {said}")
    body = parse_body(capture.body)
    if body is None:
        return failed(f"the body is no JSON object: {said}")
    flaw = session.dialect.error_flaw(body)
    if flaw is not None:
        return failed(f"{flaw} ({said})")
    if not capture.header(b"content-type").startswith("application/json"):
        return failed(f"content-type is {capture.header(b'content-type') or 'missing'}, not application/json")
    wanted = " or ".join(map(str, expected))
    return passed(said) if capture.status in expected else noted(f"{said} (the protocol's own would be {wanted})")
