"""Tells Schemathesis what the formats of ours mean that the OpenAPI document names: loaded by its command line as hooks.

Times are those of the future, which is where keys expire; cursors are the empty one, with which every list begins.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import schemathesis
from hypothesis import strategies as st

POLICY = "eu-only"

schemathesis.openapi.format("cursor", st.just(""))
schemathesis.openapi.format("policy-id", st.just(POLICY))
schemathesis.openapi.format(
    "printable", st.text(st.characters(codec="utf-8", categories=["L", "N", "S"]), min_size=1, max_size=40)
)
schemathesis.openapi.format(
    "date-time",
    st.datetimes(datetime(2090, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(datetime.isoformat),  # noqa: DTZ001
)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """No key can expire before it is made: an instant that came out of an earlier answer is moved on."""
    expiry = case.body.get("expires_at") if isinstance(case.body, dict) else None
    if isinstance(expiry, str) and re.match(r"20[0-8]\d-\d\d-\d\dT\d\d:", expiry):
        case.body["expires_at"] = "2095" + expiry[4:]
