"""Policies and keys: references, duplicates, and keys that become their hash the moment they are read."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC

from strom.config.models import Names, check_patterns
from strom.config.providers import Environment
from strom.config.schema import KeyTable
from strom.config.tables import Problems, suggestion
from strom.core.access import KeySettings, PolicySettings
from strom.upstreams.settings import Secret

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def check_policies(policies: tuple[PolicySettings, ...], problems: Problems) -> None:
    ids = Names(problems)
    for at, policy in enumerate(policies):
        path = f"policies[{at}]"
        ids.claim(policy.id, f"{path}.id")
        check_patterns(policy.regions, f"{path}.regions", problems)
        check_patterns(policy.sovereignty_classes, f"{path}.sovereignty_classes", problems)
        check_patterns(policy.retentions, f"{path}.retentions", problems)
        check_patterns(policy.providers, f"{path}.providers", problems)


def resolve_keys(
    tables: tuple[KeyTable, ...], policies: tuple[PolicySettings, ...], environment: Environment
) -> tuple[KeySettings, ...]:
    problems = environment.problems
    known = [policy.id for policy in policies]
    names, hashes = Names(problems), dict[str, str]()
    found: list[KeySettings] = []
    for at, table in enumerate(tables):
        path = f"keys[{at}]"
        names.claim(table.name, f"{path}.name")
        check_patterns(table.models, f"{path}.models", problems)
        if table.policy and table.policy not in known:
            hint = suggestion(table.policy, known)
            problems.add(f"{path}.policy", f"there is no policy {table.policy!r}{hint}")
        sha256 = _hash(table, path, environment)
        first = hashes.setdefault(sha256, path) if sha256 else path
        if first != path:
            problems.add(path, f"is the same key as {first}")
        check_patterns(table.routes, f"{path}.routes", problems)
        found.append(_key(table, sha256))
    return tuple(found)


def _key(table: KeyTable, sha256: str) -> KeySettings:
    expiry = table.expires_at
    if expiry is not None and expiry.tzinfo is None:
        expiry = expiry.replace(tzinfo=UTC)
    return KeySettings(
        table.name,
        sha256,
        table.policy,
        table.models,
        table.limits,
        table.admin,
        routes=table.routes,
        may_pin_endpoint=table.may_pin_endpoint,
        expires_at=expiry.timestamp() if expiry is not None else None,
        disabled=table.disabled,
    )


def _read_key(table: KeyTable, path: str, environment: Environment) -> Secret | None:
    if table.key_file is not None:
        return environment.key_in_file(table.key_file, f"{path}.key_file")
    return environment.key(table.key_env or "", f"{path}.key_env", demanded=True)


def _hash(table: KeyTable, path: str, environment: Environment) -> str:
    """Lower-case hex, or nothing when there is no usable key."""
    if sum(one is not None for one in (table.key_env, table.key_file, table.key_sha256)) != 1:
        environment.problems.add(path, "expected exactly one of key_env, key_file and key_sha256")
        return ""
    if table.key_sha256 is None:
        key = _read_key(table, path, environment)
        return hashlib.sha256(key.reveal().encode()).hexdigest() if key else ""
    text = table.key_sha256
    if not _SHA256.fullmatch(text):
        environment.problems.add(f"{path}.key_sha256", "expected the 64 hexadecimal digits of a SHA-256")
        return ""
    return text.lower()
