"""A scripted backend for the tests that need sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.loopback import Loopback


@pytest.fixture
def backend() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running
