"""What is installed: every locked package is a decision, under a licence that fits, by its hash, for a reason.

The decision record is requirements/packages.toml.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("run.lock", "dev.lock", "audit.lock")
ENTRY = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)==\S+(?: ;[^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
MORE_LICENCES = {"Apache Software License": "Apache-2.0", "MIT License": "MIT", "BSD License": "BSD-3-Clause"}
RECORD: dict[str, Any] = tomllib.loads((ROOT / "requirements/packages.toml").read_text("utf-8"))


def lock(name: str) -> str:
    return (ROOT / "requirements" / name).read_text("utf-8")


def packages(name: str) -> set[str]:
    return {entry[1] for entry in ENTRY.finditer(lock(name))}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    rest = ENTRY.sub("", lock(name))
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []
    assert packages(name)


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_a_decision_under_a_fitting_licence(name: str) -> None:
    decided: dict[str, str] = RECORD["packages"]
    assert packages(name) - set(decided) == set(), "add them to requirements/packages.toml, or do without them"
    fitting = set(RECORD["licences"]["allowed"])
    if name != "run.lock":
        fitting |= set(RECORD["licences"]["optional"])
    for package in packages(name):
        assert fits(decided[package], fitting), (package, decided[package])


def fits(expression: str, fitting: set[str]) -> bool:
    """An SPDX expression of AND and OR, without brackets."""
    return any(all(one.strip() in fitting for one in every.split(" AND ")) for every in expression.split(" OR "))


def test_what_runs_has_a_reason() -> None:
    assert set(RECORD["run"]) == packages("run.lock")
    assert all(len(reason) > 5 for reason in [*RECORD["run"].values(), *RECORD["quiet"].values()])


def test_nothing_that_runs_is_forgotten_by_its_authors() -> None:
    forgotten = set(RECORD["quiet"]) & packages("run.lock")
    assert forgotten == set()


def test_the_record_says_what_the_packages_say() -> None:
    """As far as they are installed here."""
    seen = 0
    for package, licence in RECORD["packages"].items():
        try:
            told = distribution(package).metadata["License-Expression"]
        except (PackageNotFoundError, KeyError):
            continue
        if told:
            seen += 1
            assert MORE_LICENCES.get(told, told).replace("3-Clause BSD License", "BSD-3-Clause") == licence, package
    assert seen > 10


def test_what_installs_checks_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installs = [line for line in makefile.splitlines() if re.search(r"pip\S*\)? .*install|\$\(PIP\) install", line)]
    assert installs
    for line in installs:
        own = "--no-deps --no-build-isolation -e ." in line
        the_locker = "'uv>=" in line
        assert "--require-hashes" in line or own or the_locker, line


def test_the_audit_tells_what_it_did_not_see(tmp_path: Path) -> None:
    """A silent advisory service must not pass for a clean bill of health."""
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexit 0\n")
    mute.chmod(0o700)
    command = [sys.executable, str(ROOT / "tools/audit.py"), "--pip-audit", str(mute), "--uv", str(mute)]
    locks = [str(ROOT / "requirements" / name) for name in LOCKS]
    done = subprocess.run([*command, *locks], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.count("NOT LOOKED AT") == len(LOCKS) + 1
    strict = subprocess.run([*command, "--strict", *locks], capture_output=True, timeout=60, check=False)
    assert strict.returncode == 1
