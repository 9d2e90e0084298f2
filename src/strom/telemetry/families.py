"""The table of metrics: every name that `/metrics` can show, with its labels and what it counts.

Names follow Prometheus: `strom_` first, base units, `_total` for counters (the client library appends it). The page
docs/how-to/observe.md has the same table, and a test compares the two.
Source: prometheus.io/docs/practices/naming, read 2026-03.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Labels = tuple[str, ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """`name` without `_total`. `buckets`: upper bounds, inclusive, rising; the last one (+Inf) is not named."""

    name: str
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Cells that one series takes: of a histogram one for each bucket, then the sum."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1

    @property
    def shown_name(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name


FIRST_TOKEN_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
GAP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)
OVERHEAD_BUCKETS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip

ROUTE = ("model", "provider", "endpoint")
BUILD = Family(
    name="strom_build_info", kind="gauge", help="Always 1; the version is in the label.", labels=("version",)
)
WORKERS = Family(name="strom_workers", kind="gauge", help="Worker processes that are alive.")

CALLS = Family(
    name="strom_calls",
    help="Finished model calls, rejected ones among them.",
    labels=("status", "protocol_in", "protocol_out", *ROUTE, "fault", "http_status"),
)
ERRORS = Family(name="strom_call_errors", help="Calls that ended in an error, by its code.", labels=("fault", "code"))
TOKENS = Family(name="strom_tokens", help="Tokens, by kind: cached is a part of input.", labels=("kind", *ROUTE))
COST = Family(name="strom_cost", help="Estimated cost, in units of the currency.", labels=("currency", *ROUTE))
BYTES = Family(name="strom_sent_bytes", help="Body bytes sent to clients.", labels=ROUTE)
FIRST_TOKEN = Family(
    name="strom_time_to_first_token_seconds",
    kind="histogram",
    help="From the first dispatch to the first token of a streamed answer.",
    labels=ROUTE,
    buckets=FIRST_TOKEN_BUCKETS_S,
)
DURATION = Family(
    name="strom_call_duration_seconds",
    kind="histogram",
    help="From the first dispatch to the end of the answer.",
    labels=ROUTE,
    buckets=DURATION_BUCKETS_S,
)
GAP = Family(
    name="strom_token_gap_seconds",
    kind="histogram",
    help="Mean time between the deltas of one streamed answer; one observation a call.",
    labels=ROUTE,
    buckets=GAP_BUCKETS_S,
)
ATTEMPTS = Family(
    name="strom_attempts", help="Requests to endpoints, by their outcome.", labels=("endpoint", "outcome")
)
RETRIES = Family(
    name="strom_retries", help="Further attempts at the endpoint that was tried before.", labels=("model",)
)
FALLBACKS = Family(name="strom_fallbacks", help="Further attempts at another endpoint.", labels=("model",))
CONTINUED = Family(
    name="strom_continued_calls", help="Calls that another endpoint went on with amid their answer.", labels=("model",)
)
OVERHEAD = Family(
    name="strom_dispatch_overhead_seconds",
    kind="histogram",
    help="The gateway's own time from a request read to its first dispatch.",
    buckets=OVERHEAD_BUCKETS_S,
)
LOOP_LAG = Family(
    name="strom_event_loop_lag_seconds",
    kind="histogram",
    help="How late a timer of the event loop goes off, sampled once a second.",
    buckets=OVERHEAD_BUCKETS_S,
)

ACTIVE_CALLS = Family(name="strom_active_calls", kind="gauge", help="Calls under way.")
ACTIVE_STREAMS = Family(name="strom_active_streams", kind="gauge", help="Calls under way whose answer is streamed.")
CONNECTIONS = Family(name="strom_open_connections", kind="gauge", help="Connections of clients.")
UPSTREAM_CONNECTIONS = Family(
    name="strom_upstream_connections", kind="gauge", help="Connections to backends.", labels=("state",)
)
UPSTREAM_REQUESTS = Family(
    name="strom_upstream_connection_uses",
    help="Requests to backends, by the connection that served: opened for it, or used again.",
    labels=("way",),
)
ENDPOINT_CIRCUIT = Family(
    name="strom_endpoint_circuit",
    kind="gauge",
    help="Workers for which the endpoint's circuit is in that state: closed, open, half-open or cooling.",
    labels=("endpoint", "state"),
)
ENDPOINT_IN_FLIGHT = Family(
    name="strom_endpoint_in_flight", kind="gauge", help="Requests under way at an endpoint.", labels=("endpoint",)
)
ENDPOINT_FAULTS = Family(
    name="strom_endpoint_faults", help="Requests that ended by a fault of the endpoint.", labels=("endpoint",)
)
ENDPOINT_WAITING = Family(
    name="strom_endpoint_waiting",
    kind="gauge",
    help="Calls that wait for a place at an endpoint.",
    labels=("endpoint",),
)
LIMIT_DECISIONS = Family(
    name="strom_limit_decisions",
    help="Decisions of the limiter: granted, or the kind of limit that refused.",
    labels=("decision", "scope"),
)
RESUMABLE = Family(name="strom_resumable_streams", kind="gauge", help="Resumable streams that are kept.")
RESUMABLE_BYTES = Family(name="strom_resumable_buffer_bytes", kind="gauge", help="What they take.")
RECORDS_LOST = Family(name="strom_records_lost", help="Records of calls that could not be kept.")
WORKER_CPU = Family(name="strom_worker_cpu_seconds", help="CPU time of worker processes.", labels=("mode",))
WORKER_MEMORY = Family(
    name="strom_worker_resident_memory_bytes", kind="gauge", help="Resident memory of worker processes together."
)
WORKER_FILES = Family(name="strom_worker_open_fds", kind="gauge", help="Open files of worker processes together.")
LOG_LOST = Family(name="strom_access_log_lost", help="Lines of the access log that could not be written in time.")

FAMILIES: tuple[Family, ...] = (
    BUILD, WORKERS,
    CALLS, ERRORS, TOKENS, COST, BYTES, FIRST_TOKEN, DURATION, GAP, ATTEMPTS, RETRIES, FALLBACKS, CONTINUED, OVERHEAD, LOOP_LAG,
    ACTIVE_CALLS, ACTIVE_STREAMS, CONNECTIONS, UPSTREAM_CONNECTIONS, UPSTREAM_REQUESTS, ENDPOINT_CIRCUIT, ENDPOINT_IN_FLIGHT,
    ENDPOINT_FAULTS, ENDPOINT_WAITING, LIMIT_DECISIONS, RESUMABLE, RESUMABLE_BYTES, RECORDS_LOST, WORKER_CPU, WORKER_MEMORY,
    WORKER_FILES, LOG_LOST,
)  # fmt: skip
