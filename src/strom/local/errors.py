"""The one error of this package."""

from __future__ import annotations

from strom.core.errors import GatewayError


class EmbeddedModelUnavailable(GatewayError):
    """The embedded model cannot run here. `message` says what to do, `detail` what went wrong."""

    status = 503
    code = "embedded_model_unavailable"
