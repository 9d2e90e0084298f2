"""Looks at the lock files: known vulnerabilities, withdrawn versions, packages that nobody releases any more.

    python tools/audit.py [--strict] --pip-audit PATH --uv PATH LOCK...

Exit 1 for a finding. What could not be looked at is said in so many words; with --strict that is a finding too: pip-audit
itself takes a package that the advisory service does not know for a good one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

RECORD = Path(__file__).resolve().parents[1] / "requirements" / "packages.toml"
QUIET_DAYS = 730
_PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_UNKNOWN = re.compile(r"there are no versions of ([a-z0-9._-]+)")
_LIMIT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(description="Audit lock files.")
    parser.add_argument("locks", nargs="+", type=Path)
    parser.add_argument("--pip-audit", required=True)
    parser.add_argument("--uv", required=True)
    parser.add_argument("--strict", action="store_true", help="what could not be looked at is a finding")
    chosen = parser.parse_args()
    findings: list[str] = []
    blind: list[str] = []
    for lock in chosen.locks:
        vulnerable, unseen = known_vulnerabilities(chosen.pip_audit, lock)
        findings += vulnerable
        blind += unseen
        findings += withdrawn(chosen.uv, lock)
    names = {name for lock in chosen.locks for name in pinned(lock)}
    stale, unseen = forgotten(chosen.uv, chosen.locks, names)
    findings += stale
    blind += unseen
    for line in findings:
        print(f"FINDING {line}")
    for line in blind:
        print(f"NOT LOOKED AT {line}")
    print(f"audit: {len(names)} packages, {len(findings)} findings, {len(blind)} could not be looked at")
    return 1 if findings or (chosen.strict and blind) else 0


def pinned(lock: Path) -> dict[str, str]:
    return dict(_PINNED.findall(lock.read_text("utf-8")))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def known_vulnerabilities(pip_audit: str, lock: Path) -> tuple[list[str], list[str]]:
    """Findings, and what the advisory service could not be asked about."""
    done = run(
        pip_audit, "-r", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off", "-f", "json"
    )
    try:
        report = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        return [], [f"{lock.name}: the advisory service did not answer ({last[0][:200]})"]
    vulnerable = [
        f"{lock.name}: {entry['name']} {entry['version']}: {found['id']}, fixed in {', '.join(found['fix_versions'])}"
        for entry in report
        for found in entry.get("vulns", ())
    ]
    skipped = [entry["name"] for entry in report if "skip_reason" in entry]
    if skipped:
        return vulnerable, [f"{lock.name}: the advisory service here knows nothing of {len(skipped)} packages"]
    return vulnerable, []


def withdrawn(uv: str, lock: Path) -> list[str]:
    """Versions that their authors withdrew, and files that are not what was locked."""
    done = run(
        uv, "pip", "install", "--dry-run", "--reinstall", "--require-hashes", "--no-deps",
        "--python", sys.executable, "-r", str(lock),
    )  # fmt: skip
    if done.returncode:
        return [f"{lock.name}: cannot be installed as locked: {done.stderr.strip()[-300:]}"]
    return [f"{lock.name}: {line}" for line in done.stderr.splitlines() if "yanked" in line]


def forgotten(uv: str, locks: list[Path], names: set[str]) -> tuple[list[str], list[str]]:
    """Packages whose locked version is older than two years though it is the newest, and that the record does not excuse."""
    before = (datetime.now(UTC) - timedelta(days=QUIET_DAYS)).date().isoformat()
    old = newest_before(uv, sorted(names), before)
    if not old:
        return [], [f"what was released before {before}: the registry did not tell"]
    now = {name: version for lock in locks for name, version in pinned(lock).items()}
    excused = tomllib.loads(RECORD.read_text("utf-8"))["quiet"]
    stale = [
        f"{name} {version}" for name, version in sorted(now.items()) if old.get(name) == version and name not in excused
    ]
    return [f"{one}: no release since {before}; take another, or excuse it in {RECORD.name}" for one in stale], []


def newest_before(uv: str, names: list[str], day: str) -> dict[str, str]:
    """The newest versions of that day; packages that are younger are left out."""
    wanted = list(names)
    while wanted:
        done = subprocess.run(
            (uv, "pip", "compile", "--quiet", "--no-deps", "--no-annotate", "--exclude-newer", day, "-"),
            input="\n".join(wanted), capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        if not done.returncode:
            return dict(_PINNED.findall(done.stdout))
        unknown = _UNKNOWN.search(done.stderr.replace("\n", " "))
        if unknown is None or unknown[1] not in wanted:
            return {}
        wanted.remove(unknown[1])
    return {}


if __name__ == "__main__":
    raise SystemExit(main())
