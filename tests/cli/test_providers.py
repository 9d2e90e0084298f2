"""`strom providers`: the table, what is configured, what answers. No host is asked here but one on loopback."""

from __future__ import annotations

from typing import Any

import pytest

from strom.cli.providers import survey
from strom.upstreams.rows import UPSTREAMS, UpstreamRow
from tests.cli.conftest import Served, Strom

MODELS = {"object": "list", "data": [{"id": "m1", "owned_by": "vllm"}, {"id": "m2"}]}


Rows = dict[str, dict[str, Any]]


def survey_of(table: dict[str, UpstreamRow], *, probe: bool = False) -> Rows:
    return {row["kind"]: row for row in survey(table, probe=probe)}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for row in UPSTREAMS.values() for name in row.key_names}:
        monkeypatch.delenv(name, raising=False)


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def test_every_kind_is_there_and_hosts_are_left_alone(strom: Strom) -> None:
    shown = strom("providers", "--json")
    rows: Rows = {row["kind"]: row for row in shown.json}
    assert shown.code == 0
    assert list(rows) == list(UPSTREAMS)
    assert all(
        row["reachable"] is None for kind, row in rows.items() if not UPSTREAMS[kind].ports and kind != "generic"
    )
    assert rows["anthropic"]["protocol"] == "anthropic"
    assert rows["gemini"]["key_variables"] == ["GEMINI_API_KEY", "GOOGLE_API_KEY"]


def test_a_set_variable_configures(strom: Strom, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = survey_of({"noris": UPSTREAMS["noris"], "plain": UpstreamRow()})
    assert [row["configured"] for row in rows.values()] == [False, None]
    monkeypatch.setenv("NORIS_API_KEY", "secret-1")
    shown = strom("providers")
    assert shown.out.split("\n", 1)[0].split() == [
        "KIND",
        "PROTOCOL",
        "BASE",
        "URL",
        "KEY",
        "CONFIGURED",
        "REACHABLE",
        "SEEN",
    ]
    line = next(line for line in shown.out.splitlines() if line.startswith("noris"))
    assert line.split() == ["noris", "openai-chat", "-", "NORIS_API_KEY", "yes", "-", "-"]
    assert "secret-1" not in shown.out


def test_a_local_server_is_found(served: Served, free_port: int) -> None:
    served.answers["/v1/models"] = (200, MODELS)
    rows = survey_of({"vllm": UpstreamRow(ports=(port_of(served), free_port)), "omlx": UpstreamRow(ports=(free_port,))})
    assert (rows["vllm"]["reachable"], rows["vllm"]["detail"]) == (True, f"{served.url}, 2 models")
    assert (rows["omlx"]["reachable"], rows["omlx"]["detail"]) == (False, "")


def test_a_local_server_of_no_known_kind(served: Served) -> None:
    served.answers["/v1/models"] = (200, {"data": [{"id": "m1", "owned_by": "me"}]})
    rows = survey_of({"generic": UpstreamRow(), "vllm": UpstreamRow(ports=(port_of(served),))})
    assert rows["vllm"]["reachable"] is False
    assert rows["generic"]["detail"] == f"{served.url}, 1 model"


def test_a_local_server_that_wants_a_key(served: Served) -> None:
    served.answers |= {"/v1/models": (401, {}), "/version": (200, {"version": "1"})}
    shown = survey_of({"ollama": UpstreamRow(), "vllm": UpstreamRow(ports=(port_of(served),))})
    assert f"{served.url} wants a key" in [row["detail"] for row in shown.values()]


@pytest.mark.parametrize(
    ("status", "key", "detail"),
    [
        (200, "k-1", "answers"),
        (401, "k-1", "refuses the key in NORIS_API_KEY"),
        (403, "", "wants a key"),
        (500, "", "answers with 500"),
    ],
)
def test_a_host_is_asked_with_probe(
    served: Served, monkeypatch: pytest.MonkeyPatch, status: int, key: str, detail: str
) -> None:
    table = {
        "noris": UpstreamRow(base_url=served.url + "/v1", key_names=("NORIS_API_KEY",), key_demanded=True),
        "anthropic": UpstreamRow(protocol="anthropic", base_url=served.url),
    }
    served.answers["/v1/models"] = (status, MODELS)
    monkeypatch.setenv("NORIS_API_KEY", key)
    assert survey_of(table)["noris"]["reachable"] is None
    assert served.requests == []
    row = survey_of(table, probe=True)["noris"]
    assert (row["reachable"], row["detail"]) == (True, detail)
    sent = [headers.get("authorization") for _, headers in served.requests if "anthropic-version" not in headers]
    assert sent == [f"Bearer {key}" if key else None]


def test_a_host_that_is_down(free_port: int) -> None:
    row = survey_of({"noris": UpstreamRow(base_url=f"http://127.0.0.1:{free_port}")}, probe=True)["noris"]
    assert row["reachable"] is False
    assert row["detail"]
