"""Which changed settings need what: every field of the schema has an answer."""

import msgspec
import pytest

from strom.config.schema import ServerSettings, SharedTable, StoreTable, TelemetryTable, TlsTable
from strom.config.settings import Settings
from strom.renewal import needing_a_restart, needing_new_processes, with_what_is_fixed
from strom.upstreams.settings import Secret


def server(**changes: object) -> Settings:
    return Settings(server=msgspec.structs.replace(ServerSettings(), **changes))


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (Settings(), []),
        (server(heartbeat_s=3.0, max_active_calls=7, allowed_origins=("*",)), []),
        (server(keep_alive_s=3.0, slow_reader_s=9.0), ["server.keep_alive_s", "server.slow_reader_s"]),
        (server(log_level="debug"), ["server.log_level"]),
        (server(tls=TlsTable("a", "b")), ["server.tls"]),
        (Settings(store=StoreTable(url="sqlite:///other.db")), ["store.url"]),
        (Settings(shared=SharedTable(url="redis://h/0")), ["shared.url"]),
        (Settings(telemetry=TelemetryTable(max_models=1)), ["telemetry.max_models"]),
        (Settings(store_keys=(Secret("k"),)), ["store.encryption_key_env"]),
        (server(port=1, workers=3), []),
    ],
)
def test_what_needs_new_processes(after: Settings, names: list[str]) -> None:
    assert sorted(needing_new_processes(Settings(), after)) == names


def test_certificates_that_only_changed_their_place_do_not() -> None:
    assert needing_new_processes(server(tls=TlsTable("a", "b")), server(tls=TlsTable("c", "d"))) == []


def test_what_is_fixed_stays() -> None:
    before = Settings(server=msgspec.structs.replace(ServerSettings(), port=4711), runtime_folder="/run/x")
    after = server(port=8081, workers=9, heartbeat_s=1.0)
    assert needing_a_restart(before, after) == ["server.port", "server.workers"]
    kept = with_what_is_fixed(before, after)
    assert (kept.server.port, kept.server.workers, kept.server.heartbeat_s) == (4711, 1, 1.0)
    assert kept.runtime_folder == "/run/x"
