"""The small endpoints beside the answers: models, token counts, Ollama's version and show."""

from __future__ import annotations

from strom.conformance.checks.findings import failed, noted, passed, skipped
from strom.conformance.reading import Object, count_at, object_at, parse_body, text_at
from strom.conformance.report import Finding
from strom.conformance.session import PLAIN, NotJudged, Session, refusal_of

_ABSENT = (404, 405, 501)


async def models(session: Session) -> Finding:
    body = await _body_of(session, session.dialect.models_path)
    names = session.dialect.model_names(body)
    if names is None:
        return failed("the answer is no list of models")
    if not names:
        return noted("the list is empty")
    if session.model not in names and f"{session.model}:latest" not in names:
        return noted(f"the model that was asked, {session.model!r}, is not among the {len(names)} listed")
    return passed(f"{len(names)}, with the one that was asked")


async def count(session: Session) -> Finding:
    """Anthropic's count_tokens and the Responses' input_tokens, against the usage of the same request."""
    body = session.body(PLAIN, stream=False)
    for name in ("stream", "max_tokens", "max_output_tokens", "temperature", "store"):
        body.pop(name, None)
    path = f"{session.dialect.path}/{'count_tokens' if session.dialect.name == 'anthropic' else 'input_tokens'}"
    capture = await session.post(path, body)
    if capture.status in _ABSENT:
        return skipped(f"not there ({capture.status})")
    found = parse_body(capture.body)
    if capture.status != 200 or found is None:
        return failed(refusal_of(capture))
    counted = count_at(found, "input_tokens")
    if not counted:
        return failed(f"input_tokens is no number above 0: {found.get('input_tokens')!r}")
    used = (await session.stream(PLAIN)).reading.input_tokens
    if used is not None and used != counted:
        return noted(f"counts {counted}, while the usage of the same request says {used}")
    return passed(f"counts {counted}")


async def version(session: Session) -> Finding:
    found = text_at(await _body_of(session, "/api/version"), "version")
    return passed(found) if found else failed("version is no text")


async def show(session: Session) -> Finding:
    capture = await session.post("/api/show", {"model": session.model})
    if capture.status in (405, 501):
        return skipped(f"not there ({capture.status})")
    body = parse_body(capture.body)
    if capture.status != 200 or body is None:
        return failed(refusal_of(capture))
    missing = [name for name in ("details", "model_info") if not isinstance(body.get(name), dict)]
    if missing:
        return failed(f"{missing[0]} is missing")
    family = text_at(object_at(body, "model_info"), "general.architecture")
    return passed(family) if family else noted("model_info has no general.architecture: clients find no context length")


async def _body_of(session: Session, path: str) -> Object:
    """Raises NotJudged where the endpoint is not there."""
    capture = await session.get(path)
    if capture.status in _ABSENT:
        raise NotJudged(f"not there ({capture.status})")
    body = parse_body(capture.body)
    if capture.status != 200 or body is None:
        raise Broken(refusal_of(capture))
    return body


class Broken(NotJudged):
    """An endpoint answers, but not what it should: the check fails."""

    code = "broken"
