"""A hundred abandoned streams in every run of the tests; ten thousand with `make soak-library`."""

from __future__ import annotations

from dataclasses import replace

from tools import soak_library


async def test_a_hundred_abandoned_streams_leave_nothing_behind() -> None:
    with soak_library.running_server() as url:
        before, after = await soak_library.soak(100, url)
    assert soak_library.stayed(before, after) == []


def test_what_stays_is_named() -> None:
    before = soak_library.Count(files=10, threads=2, tasks=1, connections=0, memory_bytes=30_000_000)
    assert soak_library.stayed(before, before) == []
    after = replace(before, files=12, connections=1, memory_bytes=60_000_000)
    files, connections, memory = soak_library.stayed(before, after)
    assert "10 before, 12 after" in files
    assert connections.startswith("connections")
    assert memory == "memory: 30.0 MB more"
