"""What the records and the usage page count is what the backend counted, however the calls ended."""

from pathlib import Path

from tests.e2e.accounting import account


def test_tokens_are_counted_as_the_backend_counts_them(tmp_path: Path) -> None:
    found = account(tmp_path, 200, workers=2)
    assert found.left > 40
    assert found.records == found.backend
    assert found.usage == found.backend
    assert set(found.statuses) == {"completed", "cancelled", "incomplete", "failed"}
