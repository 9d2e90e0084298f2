"""Providers: from tables and `--backend` flags to settings, with their keys out of the environment.

A key is taken out of `api_key_file`, looked up under `api_key_env`, or else under the variables its kind usually has it in.
It never stands in the file, and no message here repeats what stood in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from strom.config.schema import ProviderTable
from strom.config.secret_files import SecretFileFault, read_secret_file
from strom.config.settings import Backend
from strom.config.tables import Problems, read_fields, suggestion
from strom.core.errors import ConfigError
from strom.protocols.codec import Quirks
from strom.upstreams.rows import UPSTREAMS, UpstreamRow, auth_style
from strom.upstreams.settings import ProviderSettings, Secret
from strom.upstreams.urls import BaseUrl, parse_base_url

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[\x21-\x7e]+")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Environment:
    """The environment, read with reports of what is missing."""

    def __init__(self, variables: Mapping[str, str], problems: Problems) -> None:
        self._variables = variables
        self.problems = problems
        self.secrets: list[Secret] = []
        """Every key that was read."""

    def first_set(self, names: tuple[str, ...]) -> str | None:
        """The first of these variables that is set and not empty."""
        return next((name for name in names if self._variables.get(name, "").strip()), None)

    def key(self, name: str, path: str, *, demanded: bool) -> Secret | None:
        """The key in that variable. A missing one is an error where it is demanded, else a warning."""
        if not _VARIABLE.fullmatch(name):
            self.problems.add(
                path, "expected the name of an environment variable (the key itself never stands in the file)"
            )
            return None
        value = self._variables.get(name, "").strip()
        if not value:
            report = self.problems.add if demanded else self.problems.warn
            report(path, f"the environment variable {name} is not set")
            return None
        if not _KEY.fullmatch(value):
            self.problems.add(path, f"the environment variable {name} holds spaces or characters that no key has")
            return None
        return self._keep(value)

    def key_in_file(self, file: str, path: str) -> Secret | None:
        """The key in that file; whatever stands against taking it is an error."""
        try:
            value = read_secret_file(file)
        except SecretFileFault as fault:
            self.problems.add(path, str(fault))
            return None
        if not _KEY.fullmatch(value):
            what = "holds spaces or characters that no key has" if value else "is empty"
            self.problems.add(path, f"{file} {what}")
            return None
        return self._keep(value)

    def _keep(self, value: str) -> Secret:
        self.secrets.append(Secret(value))
        return self.secrets[-1]


def resolve_providers(tables: tuple[ProviderTable, ...], environment: Environment) -> dict[str, ProviderSettings]:
    """By name, in the order of the file. Of two of one name the first stays."""
    problems = environment.problems
    found: dict[str, ProviderSettings] = {}
    places: dict[str, str] = {}
    for at, table in enumerate(tables):
        path = f"providers[{at}]"
        if table.name in places:
            problems.add(f"{path}.name", f"{table.name!r} is already the name of {places[table.name]}")
        settings = _resolve(table, path, environment)
        if table.name:
            places.setdefault(table.name, path)
            found.setdefault(table.name, settings)
    return found


def add_backends(
    backends: tuple[Backend, ...], providers: dict[str, ProviderSettings], environment: Environment
) -> None:
    """Providers of `--backend` flags, named after host and port."""
    for at, backend in enumerate(backends):
        path = "--backend" if len(backends) == 1 else f"--backend[{at}]"
        url = _parse(backend.url, path, UPSTREAMS["generic"], environment.problems)
        if url is None:
            continue
        key_path = f"--api-key-env {path}" if len(backends) > 1 else "--api-key-env"
        key = environment.key(backend.api_key_env, key_path, demanded=False) if backend.api_key_env else None
        protocol = backend.protocol or "openai-chat"
        name = _free_name(url, providers)
        auth = auth_style(UPSTREAMS["generic"], protocol)
        providers[name] = ProviderSettings(name, "generic", protocol, backend.url, auth, key)


def _resolve(table: ProviderTable, path: str, environment: Environment) -> ProviderSettings:
    problems = environment.problems
    row = UPSTREAMS.get(table.kind)
    if row is None:
        hint = suggestion(table.kind, UPSTREAMS) or f"; known are {', '.join(UPSTREAMS)}"
        problems.add(f"{path}.kind", f"unknown kind {table.kind!r}{hint}")
        row = UpstreamRow(base_url="http://unknown")
    protocol = table.protocol or row.protocol
    quirks = read_fields(Quirks, table.quirks, f"{path}.quirks", problems)
    return ProviderSettings(
        name=table.name,
        kind=table.kind,
        protocol=protocol,
        base_url=_base_url(table, row, path, problems),
        auth=auth_style(row, protocol),
        api_key=_api_key(table, row, path, environment),
        region=table.region,
        sovereignty_class=table.sovereignty_class,
        retention=table.retention,
        timeouts=table.timeouts,
        health=table.health,
        quirks=msgspec.structs.replace(row.quirks, **quirks),
    )


def _api_key(table: ProviderTable, row: UpstreamRow, path: str, environment: Environment) -> Secret | None:
    where = f"{path}.api_key_env"
    if table.api_key_file is not None:
        if table.api_key_env is not None:
            environment.problems.add(path, "expected api_key_env or api_key_file, not both")
        return environment.key_in_file(table.api_key_file, f"{path}.api_key_file")
    if table.api_key_env is not None:
        return environment.key(table.api_key_env, where, demanded=row.key_demanded)
    usual = environment.first_set(row.key_names)
    if usual is not None:
        return environment.key(usual, where, demanded=row.key_demanded)
    if row.key_demanded:
        names = " or ".join(row.key_names)
        environment.problems.add(
            where, f"kind {table.kind!r} demands a key: set {names}, or name another variable here"
        )
    return None


def _base_url(table: ProviderTable, row: UpstreamRow, path: str, problems: Problems) -> str:
    text = table.base_url or row.base_url
    if text is None:
        problems.add(f"{path}.base_url", f"is missing: kind {table.kind!r} has no address of its own")
        return ""
    _parse(text, f"{path}.base_url", row, problems)
    return text


def _parse(text: str, path: str, row: UpstreamRow, problems: Problems) -> BaseUrl | None:
    try:
        return parse_base_url(text, versioned=row.versioned)
    except ConfigError as error:
        problems.add(path, error.message)
        return None


def _free_name(url: BaseUrl, taken: Mapping[str, ProviderSettings]) -> str:
    bare = _NOT_IN_A_NAME.sub("-", f"{url.origin.host}-{url.origin.port}").strip("-.")
    name, number = bare, 1
    while name in taken:
        number += 1
        name = f"{bare}-{number}"
    return name
