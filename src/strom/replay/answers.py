"""Answers that were not recorded: lists of models, health, faults that replace an answer, and our own refusals.

They are in the protocol of the path: Anthropic's below /v1/messages, Ollama's below /api, else OpenAI's.
Source: protocol-facts.md section 5 (model lists) and the error shapes of product.md section 5.
"""

from __future__ import annotations

import json
from typing import Any

from strom.replay.faults import FaultSpec
from strom.replay.recording import Asked, Fields
from strom.replay.script import Script, Send

_JSON = (("content-type", "application/json"),)
_EPOCH = "1970-01-01T00:00:00Z"
_HTML = b"<!DOCTYPE html>\n<html><head><title>%d</title></head>\n<body><center><h1>%d</h1></center></body></html>\n"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def json_answer(status: int, value: Any, headers: Fields = ()) -> Script:
    return _whole(status, _JSON + headers, json.dumps(value, ensure_ascii=False).encode())


def error_answer(path: str, status: int, message: str, headers: Fields = ()) -> Script:
    kind = _TYPES.get(status, "api_error")
    if path.startswith("/api/"):
        return json_answer(status, {"error": message}, headers)
    if "/messages" in path:
        return json_answer(status, {"type": "error", "error": {"type": kind, "message": message}}, headers)
    return json_answer(status, {"error": {"message": message, "type": kind, "param": None, "code": None}}, headers)


def fault_answer(asked: Asked, faults: FaultSpec) -> Script | None:
    """What stands in place of the recorded answer; None: the recorded one is served."""
    if faults.has("html"):
        status = faults.value("html")
        return _whole(status, (("content-type", "text/html; charset=utf-8"),), _HTML % (status, status))
    status = faults.value("status")
    if status is None:
        return None
    retry_after = faults.value("retry-after")
    headers = () if retry_after is None else (("retry-after", f"{retry_after:g}"),)
    return error_answer(asked.path, status, f"A fault on request: status {status}.", headers)


def small_answer(asked: Asked, models: list[str]) -> Script | None:
    """What clients ask beside their calls, when it was not recorded; None: something else."""
    if asked.method not in ("GET", "HEAD"):
        return None
    anthropic = any(name == "anthropic-version" for name, _ in asked.headers)
    match asked.path.rstrip("/"):
        case "/v1/models":
            return json_answer(200, _anthropic_list(models) if anthropic else _openai_list(models))
        case "/api/tags" | "/api/ps":
            return json_answer(200, {"models": [_ollama_model(name) for name in models]})
        case "/api/version" | "/version":
            return json_answer(200, {"version": "0.0.0"})
        case "/health" | "/healthz" | "/readyz" | "/v1/health":
            return json_answer(200, {"status": "ok"})
        case "":
            return _whole(200, (("content-type", "text/plain; charset=utf-8"),), b"strom replay\n")
        case path:
            return _one_model(path, models, anthropic=anthropic)


def _one_model(path: str, models: list[str], *, anthropic: bool) -> Script | None:
    name = path.removeprefix("/v1/models/")
    if name == path:
        return None
    if name not in models:
        return error_answer(path, 404, f"The model {name!r} is in none of the recordings.")
    return json_answer(200, _anthropic_model(name) if anthropic else _openai_model(name))


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "replay"}


def _openai_list(models: list[str]) -> dict[str, Any]:
    return {"object": "list", "data": [_openai_model(name) for name in models]}


def _anthropic_model(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": _EPOCH}


def _anthropic_list(models: list[str]) -> dict[str, Any]:
    ends = {"first_id": models[0] if models else None, "last_id": models[-1] if models else None}
    return {"data": [_anthropic_model(name) for name in models], "has_more": False, **ends}


def _ollama_model(name: str) -> dict[str, Any]:
    return {"name": name, "model": name, "modified_at": _EPOCH, "size": 0, "digest": "", "details": {}}


def _whole(status: int, headers: Fields, body: bytes) -> Script:
    return Script(status, headers, "length", (Send(0.0, body),))
