"""A failed exchange with an upstream, in words that say what to look at. Details of the network go to the log alone."""

from __future__ import annotations

from strom.core.errors import IncompleteStream, ProviderError, StromError, TimedOut, Unreachable
from strom.core.evidence import Evidence
from strom.transport.types import TransportFailure
from strom.upstreams.upstream import Upstream

UNRESOLVED = ("gaierror", "UnicodeError")
"""How the transport's detail begins where a host name led nowhere."""


def explain(name: str, failure: TransportFailure) -> StromError:
    """`name`: the provider's."""
    match failure.kind:
        case "connect":
            known = not failure.detail.startswith(UNRESOLVED)
            hint = "Is it running?" if known else "Its host name cannot be resolved: check its base_url."
            return Unreachable(f"The backend {name!r} cannot be reached. {hint}", detail=failure.detail)
        case "connect_timeout":
            return TimedOut(
                f"The backend {name!r} did not accept a connection in time.",
                detail=failure.detail,
                code="connect_timeout",
            )
        case "tls":
            hint = "check its certificate, and whether it speaks https at all"
            message = f"The TLS connection to the backend {name!r} could not be set up: {hint}."
            return Unreachable(message, detail=failure.detail)
        case "proxy":
            message = f"The proxy on the way to the backend {name!r} refused: check the proxy variables."
            return Unreachable(message, detail=failure.detail)
        case "closed_before_response":
            message = f"The backend {name!r} closed the connection without an answer."
            return ProviderError(message, detail=failure.detail)
        case "cut":
            message = f"The connection to the backend {name!r} broke before its answer was complete."
            return IncompleteStream(message, detail=failure.detail)
        case "decoding":
            message = f"The backend {name!r} answered with a compressed body that cannot be read."
            return ProviderError(message, detail=failure.detail)
        case "protocol" | "too_large":
            message = f"The backend {name!r} answered with something that is no valid HTTP response."
            return ProviderError(message, detail=failure.detail)


def redirected(name: str, status: int) -> StromError:
    """Keys and messages do not follow a redirection to who knows where."""
    return ProviderError(
        f"The backend {name!r} redirects (status {status}), which is not followed: check its base_url."
    )


def attribute(error: StromError, upstream: Upstream) -> None:
    """Name the backend whose fault it is, and take its key out of what it said."""
    error.message = upstream.redact(error.message)
    error.detail = upstream.redact(error.detail) if error.detail else None
    if error.fault == "upstream" and repr(upstream.name) not in error.message:
        error.message = f"Backend {upstream.name!r}: {error.message}"


def name_silence(evidence: Evidence) -> None:
    """A stream that ended before it said anything did not end in the middle of an answer."""
    silent = not (evidence.deltas or evidence.response_id or evidence.model or evidence.finish_reason)
    if silent and isinstance(evidence.error, IncompleteStream):
        evidence.error.message = "The upstream's stream ended before an answer began."
