"""No test leaves the thread of a response store behind."""

from collections.abc import AsyncIterator

import pytest

from tests.server.responses_rig import OPENED


@pytest.fixture(autouse=True)
async def _closed_archives() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()
