"""The Response object as we write it: in lifecycle events, whole replies, and what a store gives back.

What it echoes of the request is made once per reply. `instructions` is not echoed: the request carries it as a
message.
Source: openai-python 3.57.0 types/responses/response.py; protocol-facts.md section 2.2.
"""

from __future__ import annotations

from msgspec import Raw

from strom.core.errors import StromError
from strom.core.messages import Request, ToolChoice
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses.errors import response_error
from strom.protocols.openai_responses.schema import ENCODE, NAME, object_of
from strom.protocols.openai_responses.tools_out import choice_json, echoed_tools, format_json

_DEFAULTS: dict[str, bytes] = {
    "background": b"false",
    "conversation": b"null",
    "max_tool_calls": b"null",
    "previous_response_id": b"null",
    "prompt_cache_key": b"null",
    "safety_identifier": b"null",
    "service_tier": b'"default"',
    "store": b"true",
    "truncation": b'"disabled"',
}
"""Members that repeat what the client sent, and what they are when it did not."""


def response_id(upstream_id: str, reply_id: str) -> str:
    return upstream_id if upstream_id.startswith("resp_") else f"resp_{reply_id}"


class ResponseObject:
    """One reply's object in all its states. `identity` is its id."""

    __slots__ = ("_base", "identity")

    def __init__(self, context: ReplyContext, identity: str) -> None:
        self.identity = identity
        self._base: dict[str, Raw] = {
            "id": Raw(ENCODE(identity)),
            "object": Raw(b'"response"'),
            "created_at": Raw(b"%d" % context.created),
            "status": Raw(b'"in_progress"'),
            "error": Raw(b"null"),
            "incomplete_details": Raw(b"null"),
            "instructions": Raw(b"null"),
            "model": Raw(ENCODE(context.model)),
            "output": Raw(b"[]"),
            **{name: Raw(value) for name, value in _echo(context.request).items()},
            "usage": Raw(b"null"),
        }

    def begun(self, status: str = "in_progress") -> bytes:
        return object_of({**self._base, "status": Raw(ENCODE(status))})

    def ended(self, output: list[bytes], usage: bytes, incomplete: str | None) -> dict[str, Raw]:
        """The members of a proven end; `incomplete` as `meanings.incomplete_reason` has it."""
        members = self._ended("completed" if incomplete is None else "incomplete", output, usage)
        if incomplete:
            members["incomplete_details"] = Raw(ENCODE({"reason": incomplete}))
        return members

    def failed(self, output: list[bytes], usage: bytes, error: StromError) -> dict[str, Raw]:
        members = self._ended("failed", output, usage)
        members["error"] = Raw(ENCODE(response_error(error)))
        return members

    def cancelled(self, output: list[bytes], usage: bytes) -> dict[str, Raw]:
        return self._ended("cancelled", output, usage)

    def _ended(self, status: str, output: list[bytes], usage: bytes) -> dict[str, Raw]:
        changes = {"status": ENCODE(status), "output": b"[" + b",".join(output) + b"]", "usage": usage}
        return {**self._base, **{name: Raw(value) for name, value in changes.items()}}


def with_block(members: dict[str, Raw], context: ReplyContext) -> bytes:
    """The object with the routing block as its last member. Call it once, at the end."""
    block = context.block()
    if block is not None:
        members = {**members, context.block_name: Raw(block)}
    return object_of(members)


def _echo(request: Request | None) -> dict[str, bytes]:
    if request is None:
        request = Request(NAME, "", ())
    extras = {name: value.text.encode() for name, value in request.extras} if request.protocol == NAME else {}
    choice = request.tool_choice or ToolChoice("auto")
    sampling, reasoning = request.sampling, request.reasoning
    echo: dict[str, bytes] = {
        "max_output_tokens": ENCODE(request.max_output_tokens),
        "metadata": request.metadata.text.encode() if request.metadata is not None else b"{}",
        "parallel_tool_calls": ENCODE(request.parallel_tool_calls is not False),
        "reasoning": ENCODE(
            {
                "effort": (reasoning.effort if reasoning is not None else "") or None,
                "summary": (reasoning.summary if reasoning is not None else "") or None,
            }
        ),
        "temperature": ENCODE(1.0 if sampling.temperature is None else sampling.temperature),
        "text": ENCODE({"format": format_json(request.response_format), "verbosity": request.verbosity or "medium"}),
        "tool_choice": extras.get("tool_choice") or ENCODE(choice_json(choice, request.tools)),
        "tools": ENCODE(echoed_tools(request.tools)),
        "top_logprobs": ENCODE(sampling.top_logprobs or 0),
        "top_p": ENCODE(1.0 if sampling.top_p is None else sampling.top_p),
        "user": ENCODE(request.user or None),
    }
    echo.update((name, extras.get(name, default)) for name, default in _DEFAULTS.items())
    return dict(sorted(echo.items()))
