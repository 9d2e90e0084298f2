"""From what went wrong to a reason, and to the exception that carries the evidence.

A failure has two sides: where in the stream it stands (`StreamErrorReason`) and what it is (the error tree). The exception
has both: what is raised for a refused key is `StreamFailed` and `AuthError` at once, so either may be caught. `message` is
always a string; `metadata` holds text, usage, timing and all else that had come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.core import errors
from strom.core.errors import StromError

if TYPE_CHECKING:
    from strom.client.events import StreamError, StreamErrorReason
    from strom.client.evidence import CompletionMetadata, StreamMetrics
    from strom.transport.types import TransportFailure


class StreamFailed(StromError):
    """A stream that is no success. `error` is the typed error behind it, None where the stream itself is the reason."""

    fault = "upstream"
    status = 502
    code = "stream_failed"
    reason: StreamErrorReason
    metadata: CompletionMetadata
    error: StromError | None = None

    @property
    def stream_metrics(self) -> StreamMetrics:
        return self.metadata.timing

    @property
    def text(self) -> str:
        """What had come: evidence, never a result."""
        return self.metadata.text


class StreamMisuse(StromError):
    """A stream was used after its end, a second time, or by two readers at once."""

    fault = "client"
    status = 400
    code = "stream_misuse"


_OF_THE_STREAM = (errors.StreamFailed,)
"""Core errors that say no more than the reason does."""
_COMBINED: dict[type[StromError], type[StreamFailed]] = {}


def failure_of(event: StreamError) -> StreamFailed:
    """The exception for a failed stream."""
    error = event.error
    failed = _combined_class(error)(event.detail)
    if error is None:
        failed.code = event.reason.value
    else:
        failed.__dict__.update(error.__dict__)  # whatever its kind knows besides
        failed.message = event.detail
        failed.code, failed.status, failed.retryable = error.code, error.status, error.retryable
        failed.__cause__ = error
    failed.reason, failed.metadata, failed.error = event.reason, event.metadata, error
    return failed


def _combined_class(error: StromError | None) -> type[StreamFailed]:
    if error is None or isinstance(error, _OF_THE_STREAM):
        return StreamFailed
    kind = type(error)
    if kind not in _COMBINED:
        constructor = {"__init__": StromError.__init__, "__module__": "strom", "fault": kind.fault}
        _COMBINED[kind] = type(kind.__name__, (StreamFailed, kind), constructor)
    return _COMBINED[kind]


def as_callers(error: StromError) -> StromError:
    """The error in the view of a program that calls the provider itself: a refused key is its own matter."""
    if isinstance(error, errors.ProviderAuthError):
        message = "The provider refused the API key: check the key and what it may do."
        return errors.AuthError(message, detail=error.detail)
    return error


def explain(failure: TransportFailure, name: str) -> StromError:
    """The error behind a failed exchange, in words that say what to look at."""
    detail = failure.detail
    match failure.kind:
        case "connect":
            return errors.Unreachable(f"{name} cannot be reached. Is it running?", detail=detail)
        case "connect_timeout":
            return errors.TimedOut(f"{name} did not accept a connection in time.", detail=detail)
        case "tls":
            message = f"The TLS connection to {name} could not be set up: check its certificate."
            return errors.Unreachable(message, detail=detail)
        case "proxy":
            message = f"The proxy on the way to {name} refused: check the proxy variables."
            return errors.Unreachable(message, detail=detail)
        case "closed_before_response":
            return errors.ProviderError(f"{name} closed the connection without an answer.", detail=detail)
        case "cut":
            message = f"The connection to {name} broke before its answer was complete."
            return errors.IncompleteStream(message, detail=detail)
        case "protocol" | "too_large" | "decoding":
            message = f"{name} answered with something that is no valid HTTP response."
            return errors.ProviderError(message, detail=detail)
