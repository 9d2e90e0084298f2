"""The one error tree, split by whose fault it is.

An error has an HTTP status (before the first byte), a stable `code`, a public `message` that says what to do, and a
private `detail` that goes into records and logs only. Each protocol's `errors.py` words it for its own clients.
Product reference: product.md section 5.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

_CODE = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")
"""What an upstream calls a code goes into records and metrics: words that a backend put there are none."""

Fault = Literal["client", "upstream", "gateway"]


class StromError(Exception):
    """Base of everything Strom raises. `message` is always a string and safe to show to the caller."""

    fault: ClassVar[Fault] = "gateway"
    status: int = 500
    code: str = "internal_error"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        code: str | None = None,
        status: int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers: list[tuple[bytes, bytes]] = []
        """Rate-limit headers of the upstream that the caller may see, names in lower case."""
        if code is not None and _CODE.fullmatch(code):
            self.code = code
        if status is not None:
            self.status = status

    def __str__(self) -> str:
        """The message as it is now: what was redacted stays redacted."""
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


def let_go(error: BaseException) -> None:
    """For an error that has arrived where it becomes an answer: without the frames that it passed. They refer to it and to
    everything of its call, so that only a collection would free all that."""
    left: list[BaseException | None] = [error]
    seen = set()
    while left:  # no recursion: a row of errors can be longer than the stack is deep, and it can be a circle
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)


# --- the client's fault --------------------------------------------------------------------------


class ClientError(StromError):
    fault = "client"
    status = 400
    code = "invalid_request"


class BadRequest(ClientError):
    """The request is malformed, or asks for what its protocol does not allow."""


class Unsupported(ClientError):
    """Well-formed, but the chosen backend or this translation cannot do it (and leaving it out would change the meaning)."""

    code = "unsupported"


class AuthError(ClientError):
    """`delay_s`: how long the answer is held back, so that guessing is slow. `key_name`: whose secret it was, where it was
    one that is of no use any more."""

    status = 401
    code = "invalid_api_key"
    delay_s: float = 0.0
    key_name: str | None = None


class PermissionDenied(ClientError):
    """The key, or the policy, does not allow it. Nothing was sent upstream."""

    status = 403
    code = "permission_denied"


class NotFound(ClientError):
    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodNotAllowed(ClientError):
    status = 405
    code = "method_not_allowed"


class TooLarge(ClientError):
    status = 413
    code = "request_too_large"


class ContextOverflow(ClientError):
    """The input does not fit the model. Either number is None when the upstream did not tell it."""

    code = "context_length_exceeded"

    def __init__(
        self, message: str, *, tokens: int | None = None, limit: int | None = None, detail: str | None = None
    ) -> None:
        super().__init__(message, detail=detail)
        self.tokens = tokens
        self.limit = limit


class ContentPolicy(ClientError):
    """The upstream refused the content."""

    code = "content_policy"


class RateLimited(ClientError):
    """Too many requests, here or upstream (`origin`)."""

    status = 429
    code = "rate_limit_exceeded"
    retryable = True


class Cancelled(ClientError):
    """The client left. Never sent, only recorded."""

    status = 499
    code = "cancelled"


# --- the upstream's fault ------------------------------------------------------------------------


class ProviderError(StromError):
    """The upstream failed, or answered with something that is no answer."""

    fault: ClassVar[Fault] = "upstream"
    status = 502
    code = "upstream_error"
    retryable = True


class ProviderAuthError(ProviderError):
    """The upstream refused *our* credentials: an operator's matter, never the client's 401, never retried."""

    code = "upstream_auth"
    retryable = False


class Unreachable(ProviderError):
    code = "upstream_unreachable"


class Overloaded(ProviderError):
    """Busy or loading. 503, towards Anthropic clients 529."""

    status = 503
    code = "overloaded"


class AtCapacity(Overloaded):
    """This gateway, not an upstream, has as much to do as it may have: worded like `Overloaded`."""

    fault = "gateway"


class TimedOut(ProviderError):
    status = 504
    code = "upstream_timeout"


class StreamFailed(ProviderError):
    """A stream that did not prove its end."""

    code = "stream_failed"


class IncompleteStream(StreamFailed):
    """The bytes ended without the terminator."""

    code = "incomplete_stream"


class IncompleteCompletion(StreamFailed):
    """The terminator came, the reason did not."""

    code = "incomplete_completion"


class InvalidStreamEvent(StreamFailed):
    """A frame that is no frame of its protocol."""

    code = "invalid_stream_event"


class InvalidAnswer(ProviderError):
    """A complete answer that is not what was demanded of it: no JSON, or JSON that does not fit its schema."""

    code = "invalid_structured_output"
    retryable = False


# --- ours ----------------------------------------------------------------------------------------


class GatewayError(StromError):
    """A defect of ours, or a shutdown."""


class ShuttingDown(GatewayError):
    status = 503
    code = "shutting_down"
    retryable = True


class LimitsUnavailable(GatewayError):
    """Nobody can tell at the moment whether the caller's limits allow the call."""

    status = 503
    code = "limits_unavailable"
    retryable = True


class ConfigError(StromError):
    """A configuration that cannot be used; `message` carries every error, one a line, each with its path."""

    code = "invalid_configuration"


class ToolError(StromError):
    """A tool of the caller's failed while it ran."""

    fault = "client"
    code = "tool_error"
