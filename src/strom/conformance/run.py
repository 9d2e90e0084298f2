"""Runs the checks: finds the model and the protocols, then one protocol after the other, one question at a time.

A protocol counts as spoken when its first question is answered as that protocol would; a page that is not there (404, 405,
501), a demand for a key, or something else altogether do not count. A protocol that was asked for by name is checked in
any case.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.conformance.asking import Endpoint, Unresponsive
from strom.conformance.checks.endpoints import Broken
from strom.conformance.checks.table import CHECKS, Check
from strom.conformance.checks.timing import measure
from strom.conformance.dialects.dialect import Dialect
from strom.conformance.dialects.table import DIALECTS
from strom.conformance.reading import parse_body
from strom.conformance.report import Finding, ProtocolReport, Report, Result
from strom.conformance.session import PLAIN, Answer, NotJudged, Session
from strom.core.errors import Unreachable
from strom.transport.types import OutgoingRequest
from strom.upstreams.settings import ProtocolName

FALLBACK_MODEL = "default_model"
"""Where no model is named and none is listed. mlx_lm.server's own word for the model it was started with; servers with
one model take any."""


async def examine(endpoint: Endpoint, protocols: Sequence[ProtocolName] | None, model: str | None) -> Report:
    """`protocols` None: those that the endpoint speaks. Raises Unreachable."""
    listed = await find_model(endpoint)
    name = model or listed
    reports: list[ProtocolReport] = []
    for dialect in DIALECTS:
        if protocols is None or dialect.name in protocols:
            session = Session(endpoint, dialect, name)
            reports.append(await _examine_protocol(session, asked_for=protocols is not None))
    return Report(str(endpoint.base), name, tuple(reports))


async def find_model(endpoint: Endpoint) -> str:
    """The first in a list of models that is not for embeddings. Raises Unreachable."""
    for dialect in (DIALECTS[0], DIALECTS[-1]):
        session = Session(endpoint, dialect, "")
        request = OutgoingRequest("GET", dialect.models_path, session.headers())
        capture = await endpoint.ask_for(request, endpoint.timeout_s)
        if capture.unsent:
            raise Unreachable(f"{endpoint.base} cannot be reached: {capture.failure}")
        body = parse_body(capture.body) if capture.status == 200 else None
        names = dialect.model_names(body) if body is not None else None
        if names:
            return next((name for name in names if "embed" not in name.lower()), names[0])
    return FALLBACK_MODEL


async def _examine_protocol(session: Session, *, asked_for: bool) -> ProtocolReport:
    dialect = session.dialect
    try:
        spoken, reason = judge_spoken(await session.settle_in(), dialect, session.model)
    except Unresponsive as error:
        spoken, reason = False, error.message
    reason = session.endpoint.redact(reason)
    if not spoken and not asked_for:
        return ProtocolReport(dialect.name, dialect.path, spoken, reason)
    results = [await _run(check, session) for check in CHECKS if dialect.name in check.rules]
    answer = await session.stream(PLAIN) if spoken else None
    timing = measure(answer) if answer else None
    return ProtocolReport(dialect.name, dialect.path, spoken, reason, tuple(results), timing)


def judge_spoken(answer: Answer, dialect: Dialect, model: str) -> tuple[bool, str]:
    """Whether the endpoint speaks this protocol at all, by its first answer, and why."""
    capture = answer.capture
    if capture.end == "none" or (capture.end == "timeout" and not capture.status):
        return False, answer.refusal
    if capture.status == 200:
        body = parse_body(capture.body)
        strange = capture.header(b"content-type").startswith("text/html")
        refused = body is not None and "error" in body and answer.reading.finish is None
        return not (strange or refused), "answers" if not (strange or refused) else "200 with something else"
    if capture.status in (401, 403):
        return False, f"{answer.refusal} (name the variable that holds a key with --api-key-env)"
    absent = capture.status in (404, 405, 501)
    about_model = model.lower() in answer.refusal.lower()
    return (about_model or not absent), answer.refusal


async def _run(check: Check, session: Session) -> Result:
    try:
        finding = await check.run(session)
    except Broken as error:
        finding = Finding("fail", error.message)
    except (NotJudged, Unresponsive) as error:
        finding = Finding("skip", error.message)
    rule = check.rules[session.dialect.name]
    detail = session.endpoint.redact(finding.detail)
    return Result(check.name, finding.verdict, detail, rule.text, rule.source)
