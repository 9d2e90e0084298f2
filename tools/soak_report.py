"""What came of a gateway under load: whether its records are true, what is flat, and all of it as numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import msgspec

from strom.core.record import CallRecord
from tools.soak_backend import MARK, Backend
from tools.soak_clients import Crowd, Told
from tools.soak_watch import Sample

WARM_S = 180.0
FLAT = 0.05


class Outcome(msgspec.Struct):
    """`faults`: what was found wrong, besides lies to clients. Sockets are shared out anew after each kill, so that their
    number is told and not judged: that none is left is seen when all clients are gone."""

    minutes: float
    backend: Backend
    crowd: Crowd
    samples: list[Sample]
    records: list[CallRecord]
    faults: list[str]


def flatness(samples: list[Sample], role: str, value: str, end_s: float) -> dict[str, Any]:
    """Medians of each minute, from minute 3 to the end, and by how much they leave their own middle."""
    minutes: dict[int, list[float]] = {}
    for sample in samples:
        if sample.role == role and WARM_S <= sample.at_s <= end_s:
            minutes.setdefault(int(sample.at_s // 60), []).append(getattr(sample, value))
    medians = [round(statistics.median(found), 1) for _, found in sorted(minutes.items())]
    if not medians:
        return {"medians": [], "spread": 0.0}
    middle = statistics.median(medians)
    return {"medians": medians, "spread": round(max(abs(each - middle) for each in medians) / (middle or 1), 3)}


ALLOWED = {
    "success": ("completed",),
    "error": ("incomplete", "failed"),
    "status": ("failed", "incomplete", "rejected"),
    "left": ("cancelled", "completed", "failed", "incomplete", "rejected"),
    "killed": ("cancelled", "completed", "failed", "incomplete", "rejected"),
}


def check_records(records: list[CallRecord], backend: Backend, crowd: Crowd) -> list[str]:
    by_mark: dict[bytes, list[CallRecord]] = {}
    for record in records:
        found = MARK.search((record.client or "").encode())
        if found is not None:
            by_mark.setdefault(found[0], []).append(record)
    faults = [
        f"{mark!r}: {len(by_mark.get(mark, []))} records" for mark in backend.calls if len(by_mark.get(mark, [])) != 1
    ]
    for mark, told in crowd.told.items():
        for record in by_mark.get(mark, []):
            faults += [f"{mark!r} {told.manner}: {what}" for what in _differences(told, record, backend)]
    return faults


def _differences(told: Told, record: CallRecord, backend: Backend) -> list[str]:
    found = []
    if told.end in ALLOWED and record.status not in ALLOWED[told.end]:
        found.append(f"the client was told {told.end}, the record says {record.status}")
    if told.trace_id and told.trace_id != record.trace_id:
        found.append("another trace id")
    if record.status == "started":
        found.append("it has not ended")
    lost = record.error is not None and record.error.code == "lost"
    seen = backend.calls.get((record.client or "").encode())
    # A kept connection that its backend had closed is no attempt: the request is sent again, once.
    if seen is not None and not lost and len(record.attempts) + seen.faults.count("unanswered") < len(seen.faults):
        found.append(f"{len(record.attempts)} attempts of {len(seen.faults)}")
    return found


def report(outcome: Outcome) -> dict[str, Any]:
    crowd, backend, records = outcome.crowd, outcome.backend, outcome.records
    flat = {
        f"{role} {value}": flatness(outcome.samples, role, value, outcome.minutes * 60)
        for role in ("old", "supervisor")
        for value in ("rss_mb", "other_files", "sockets")
    }
    faults = outcome.faults + [
        f"{name} is not flat: {told['medians']}"
        for name, told in flat.items()
        if told["spread"] > FLAT and not name.endswith("sockets")
    ]
    ends: Counter[str] = Counter()
    for name, count in crowd.counts.items():
        ends[name.partition(": ")[2] or name] += count
    return {
        "minutes": outcome.minutes,
        "calls": sum(count for name, count in crowd.counts.items() if ": " in name),
        "calls_seen_by_backend": len(backend.calls),
        "backend_faults": dict(backend.faults),
        "ends": dict(ends),
        "manners": dict(sorted(crowd.counts.items())),
        "workers_killed": len(crowd.kills),
        "records": dict(Counter(record.status for record in records)),
        "continued": sum(record.continued for record in records),
        "attempts": sum(len(record.attempts) for record in records),
        "flat": flat,
        "late": crowd.late[:50],
        "lies": crowd.lies[:50],
        "faults": faults[:50],
        "lies_count": len(crowd.lies),
        "faults_count": len(faults),
        "samples": msgspec.to_builtins(outcome.samples),
    }


def table(told: dict[str, Any]) -> str:
    """For docs/trust.md."""
    ends, struck = told["ends"], told["backend_faults"]
    asked = sum(struck.values())
    rows = {
        "minutes, streams at once": f"{told['minutes']:g}, {told['streams']}",
        "calls": f"{told['calls']:,}",
        "told a success, an error, an HTTP status": _row(ends, "success", "error", "status"),
        "left by their client, ended by a killed worker": _row(ends, "left", "killed"),
        "requests at the backend, of them with a fault": f"{asked:,}, {asked - struck.get('none', 0):,}",
        "answers continued at another endpoint": f"{told['continued']:,}",
        "workers killed": f"{told['workers_killed']}",
        "lies": f"{told['lies_count']}",
        "given up after 90 s": f"{len(told['late'])}",
        "records that are missing or disagree, leaks": f"{told['faults_count']}",
    }
    for name, flat in told["flat"].items():
        rows[f"{name}, medians of minutes"] = f"{flat['medians'][:1]} … {flat['medians'][-1:]}, ± {flat['spread']:.1%}"
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _row(counts: dict[str, int], *names: str) -> str:
    return ", ".join(f"{counts.get(name, 0):,}" for name in names)
