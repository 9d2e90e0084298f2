"""docs/library-rows.md names tests that exist, and every row that must hold."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS.parents[1] / "docs" / "library-rows.md").read_text("utf-8")
MUST = (
    "M-01 M-02 M-03 M-04 M-05 M-06 M-08 M-09 M-10 M-11 M-12 M-13 M-14 M-20 M-21 M-22 M-23 M-24 M-25 M-26 M-27 M-40 M-60 M-67 "
    "B-01 B-02 B-03 B-04 B-05 B-06 B-07 B-08 N-01 N-02 N-03 N-04 N-05 N-06 L-04 L-08"
)


def test_named_tests_exist() -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", TABLE)
    assert len(named) > 80
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (TESTS / file).read_text("utf-8"), re.MULTILINE), f"{file}::{test}"


def test_every_row_that_must_hold_is_named() -> None:
    must = TABLE.partition("## Rows beyond")[0]
    assert [row for row in MUST.split() if not re.search(rf"^\|[^|]*\b{row}\b", must, re.MULTILINE)] == []


def test_all_vectors_are_tests() -> None:
    found = re.findall(r"^def test_vector_(\d\d)_", (TESTS / "test_vectors.py").read_text("utf-8"), re.MULTILINE)
    assert found == [f"{number:02}" for number in range(1, 32)]
