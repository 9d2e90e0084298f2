"""`[store]`: where records go, and the keys that seal stored content, the newest first."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from strom.config.providers import Environment
from strom.config.schema import StoreTable
from strom.core.errors import ConfigError
from strom.stores.sealing import parse_key
from strom.stores.urls import parse_store_url
from strom.upstreams.settings import Secret

BELONGS_ELSEWHERE = (
    "a password never stands in the file: put it into PGPASSWORD or .pgpass, or the whole URL into STROM_STORE_URL"
)


def store_password(url: str) -> str:
    """The password in a store's URL; empty when there is none."""
    try:
        parts = urlsplit(url)
        return unquote(parts.password or "") or parse_qs(parts.query).get("password", [""])[-1]
    except ValueError:
        return ""


def resolve_store(table: StoreTable, environment: Environment) -> tuple[Secret, ...]:
    """The keys that seal stored content: the first seals, all open. Checks the rest of the table."""
    problems = environment.problems
    try:
        parse_store_url(table.url)
    except ConfigError as error:
        problems.add("store.url", error.message)
    if password := store_password(table.url):
        environment.secrets.append(Secret(password))
    if table.encryption_key_env and table.encryption_key_file:
        problems.add("store", "expected one of encryption_key_env and encryption_key_file")
    keys = _named(table.encryption_key_env, table.encryption_key_file, "store.encryption_key", environment)
    if not keys and (table.old_encryption_key_envs or table.old_encryption_key_files):
        problems.add(
            "store", "old encryption keys stand beside a current one: encryption_key_env or encryption_key_file"
        )
    for at, name in enumerate(table.old_encryption_key_envs):
        keys += _named(name, None, f"store.old_encryption_key_envs[{at}]", environment)
    for at, file in enumerate(table.old_encryption_key_files):
        keys += _named(None, file, f"store.old_encryption_key_files[{at}]", environment)
    return keys


def _named(name: str | None, file: str | None, path: str, environment: Environment) -> tuple[Secret, ...]:
    key: Secret | None = None
    if name is not None:
        key = environment.key(name, path, demanded=True)
    elif file is not None:
        key = environment.key_in_file(file, path)
    if key is None:
        return ()
    try:
        parse_key(key.reveal())
    except ConfigError as error:
        environment.problems.add(path, error.message)
        return ()
    return (key,)
