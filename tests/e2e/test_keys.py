"""Keys between processes: made on the command line, known in every worker within seconds, kept nowhere in the clear."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from strom.policies.key_making import KeyMaker
from strom.policies.managed_keys import TAKES_EFFECT_S
from strom.stores.keys import KeyScopes
from strom.stores.table import open_key_store
from tests.e2e.processes import upstream
from tests.e2e.test_limits import serve
from tests.patience import PATIENCE_S


async def statuses(url: str, key: str, count: int = 12) -> set[int]:
    """Of a request that is bad, as only those learn who are admitted. Over many connections: every worker answers some."""
    async with httpx.AsyncClient(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        asked = [client.post(f"{url}/v1/embeddings", json={}, headers={"x-api-key": key}) for _ in range(count)]
        return {answer.status_code for answer in await asyncio.gather(*asked)}


async def all_answer(status: int, url: str, key: str) -> None:
    """In time; a busy machine has more of it."""
    await asyncio.sleep(TAKES_EFFECT_S - 1)
    end = time.monotonic() + PATIENCE_S
    while await statuses(url, key) != {status}:
        assert time.monotonic() < end


async def test_a_key_is_known_and_revoked_everywhere_within_seconds(tmp_path: Path) -> None:
    with upstream() as origin, ExitStack() as stack:
        served = serve(stack, tmp_path, origin, "--workers", "2")
        store = open_key_store(f"sqlite:///{tmp_path / 'strom.db'}")
        maker = KeyMaker(store)
        made = maker.create("ci", KeyScopes())
        await all_answer(400, served.url, made.secret)
        maker.revoke("ci")
        await all_answer(401, served.url, made.secret)
        store.close()
    assert not holding(tmp_path, made.secret.rpartition("-")[2].encode())


def holding(folder: Path, secret: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]
