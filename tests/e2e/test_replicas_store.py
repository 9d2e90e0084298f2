"""Two gateways on one PostgreSQL: what one of them stores, the other one knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.e2e.processes import Gateway, Upstream, gateway, upstream
from tests.patience import PATIENCE_S, wait_until


def replica(folder: Path, backend: Upstream, url: str) -> Any:
    folder.mkdir()
    address = f"http://127.0.0.1:{backend.port}"
    return gateway(folder, "--backend", address, STROM_STORE_URL=url, XDG_STATE_HOME=str(folder))


def post(running: Gateway, text: str, **more: Any) -> dict[str, Any]:
    answer = httpx.post(f"{running.url}/v1/responses", json={"model": "m", "input": text, **more}, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def get(running: Gateway, path: str) -> httpx.Response:
    return httpx.get(f"{running.url}{path}", timeout=PATIENCE_S)


def test_replicas_share_responses_background_events_and_records(postgres_database: str, tmp_path: Path) -> None:
    with (
        upstream() as backend,
        replica(tmp_path / "a", backend, postgres_database) as first,
        replica(tmp_path / "b", backend, postgres_database) as second,
    ):
        made = post(first, "n=3 gap=0.05", background=True)
        events = get(second, f"/v1/responses/{made['id']}?stream=true").text
        assert "response.completed" in events
        assert get(second, f"/v1/responses/{made['id']}").json()["status"] == "completed"
        went_on = post(second, "n=1", previous_response_id=made["id"], background=True)
        wait_until(lambda: get(first, f"/v1/responses/{went_on['id']}").json()["status"] == "completed")
        assert b"n=3 gap=0.05" in backend.requests[-1][1]  # the conversation came along
        for running in (first, second):
            wait_until(lambda running=running: len(running.traces()) >= 2)  # type: ignore[misc]
            assert len(running.traces()) == 2
            usage = get(running, "/platform/v1/usage?by=model").json()["data"]
            assert [(row["model"], row["calls"]) for row in usage] == [("real", 2)]
