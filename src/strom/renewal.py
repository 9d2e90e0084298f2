"""What changed settings ask for: nothing more than to be read, new processes, or a start from nothing.

Invariant: what is not named in `_TAKEN_IN_PLACE` needs a new process; so does a setting that is added to the schema, until
somebody has made it take effect at once.
"""

from __future__ import annotations

import msgspec

from strom.config.schema import ServerSettings
from strom.config.settings import Settings

_TAKEN_IN_PLACE = frozenset(
    (
        "heartbeat_s", "routing_block", "reasoning", "structured_fallback", "max_reply_bytes", "max_frame_bytes",
        "fetch_media", "media_max_bytes", "media_max_items", "media_timeout_s",
        "max_active_calls", "max_memory_mb", "allowed_origins", "allowed_hosts", "metrics_public",
    )
)  # fmt: skip
"""Of `[server]`. Keys, limits, models, providers and policies are taken in place, too."""
_FIXED = ("host", "port", "admin_host", "admin_port", "workers")
"""Of `[server]`: what the parent of the workers stands on."""


def needing_new_processes(before: Settings, after: Settings) -> list[str]:
    """Paths of the settings that differ and are read once, when a process starts."""
    names = [name for name in ServerSettings.__struct_fields__ if name not in (*_TAKEN_IN_PLACE, *_FIXED, "tls")]
    found = _differing("server", before.server, after.server, names)
    if (before.server.tls.cert_file is None) != (after.server.tls.cert_file is None):
        found.append("server.tls")
    for table in ("store", "shared", "telemetry"):
        old, new = getattr(before, table), getattr(after, table)
        found += _differing(table, old, new, old.__struct_fields__)
    if [key.reveal() for key in before.store_keys] != [key.reveal() for key in after.store_keys]:
        found.append("store.encryption_key_env")
    return found


def needing_a_restart(before: Settings, after: Settings) -> list[str]:
    return _differing("server", before.server, after.server, _FIXED)


def with_what_is_fixed(before: Settings, after: Settings) -> Settings:
    """The new settings as far as they can be had without a restart."""
    kept = {name: getattr(before.server, name) for name in _FIXED}
    server = msgspec.structs.replace(after.server, **kept)
    providers = after.providers or before.providers  # those that were found at the start
    return msgspec.structs.replace(after, server=server, providers=providers, runtime_folder=before.runtime_folder)


def _differing(
    table: str, before: msgspec.Struct, after: msgspec.Struct, names: tuple[str, ...] | list[str]
) -> list[str]:
    return [f"{table}.{name}" for name in names if getattr(before, name) != getattr(after, name)]
