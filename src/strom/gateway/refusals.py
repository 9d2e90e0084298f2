"""What the transport would not accept, and methods that a path does not take, as errors in the words of any protocol."""

from __future__ import annotations

from strom.core.errors import AtCapacity, BadRequest, MethodNotAllowed, ShuttingDown, StromError, TooLarge
from strom.transport.types import Refusal

NESTED = "The JSON of the request is nested too deeply."


def not_allowed(path: str, taken: str, allow: str = "") -> MethodNotAllowed:
    """`allow`: the header that RFC 9110 section 15.5.6 demands, where it says it otherwise than `taken`."""
    error = MethodNotAllowed(f"{path} takes {taken}.")
    error.headers = [(b"allow", (allow or taken).encode())]
    return error


def refusal_error(refusal: Refusal) -> StromError:
    match refusal.reason:
        case "body_too_large":
            return TooLarge("The request body is larger than this gateway accepts ([server] max_body_bytes).")
        case "head_too_large":
            return BadRequest("The request's head is too large.", status=refusal.status)
        case "draining":
            return ShuttingDown("The gateway is shutting down: try again in a moment.", retry_after_s=1.0)
        case "overloaded":
            return AtCapacity("The gateway is overloaded: try again in a moment.", retry_after_s=1.0)
        case "timeout":
            return BadRequest("The request did not arrive in time.", status=refusal.status)
        case "bad_request" | "not_implemented" | "version_not_supported" | "expectation_failed":
            return BadRequest(f"The request is no valid HTTP request: {refusal.detail}", status=refusal.status)
