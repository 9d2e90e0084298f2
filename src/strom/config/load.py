"""From file, environment and flags to `Settings`: every error at once, each with its path.

Flags beat `STROM_*` variables, which beat the file, which beats the defaults. A literal key in the file, an unknown name, a
reference to nothing: all are errors, reported together in one `ConfigError`, one a line. Source: product.md sections 1 and 4.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote, urlsplit

import msgspec

from strom.config.access import check_policies, resolve_keys
from strom.config.listening import check_listening
from strom.config.models import resolve_models
from strom.config.providers import Environment, add_backends, resolve_providers
from strom.config.schema import AuthSettings, Document, ServerSettings, SharedTable, StoreTable
from strom.config.settings import Overrides, Settings
from strom.config.storing import BELONGS_ELSEWHERE, resolve_store, store_password
from strom.config.tables import Problems, explain, read_table
from strom.core.errors import ConfigError
from strom.upstreams.settings import Secret

VARIABLES: dict[str, tuple[str, str]] = {
    "STROM_HOST": ("server", "host"),
    "STROM_PORT": ("server", "port"),
    "STROM_WORKERS": ("server", "workers"),
    "STROM_MAX_BODY_BYTES": ("server", "max_body_bytes"),
    "STROM_HEARTBEAT_S": ("server", "heartbeat_s"),
    "STROM_SHUTDOWN_GRACE_S": ("server", "shutdown_grace_s"),
    "STROM_ROUTING_BLOCK": ("server", "routing_block"),
    "STROM_REASONING": ("server", "reasoning"),
    "STROM_LOG_LEVEL": ("server", "log_level"),
    "STROM_LOG_FORMAT": ("server", "log_format"),
    "STROM_STORE_URL": ("store", "url"),
    "STROM_SHARED_URL": ("shared", "url"),
    "STROM_ACCESS_LOG": ("server", "access_log"),
    "STROM_AUTH_REQUIRED": ("auth", "required"),
}
"""Variable → section and key of the file. `STROM_CONFIG` names the file itself."""

_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "server": ServerSettings, "store": StoreTable, "shared": SharedTable, "auth": AuthSettings,
}  # fmt: skip
_RESERVED = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "type", "delta", "message", "done", "error", "response")
)


def load_settings(path: Path | None, overrides: Overrides, environ: Mapping[str, str]) -> Settings:
    """`path` None: the file that STROM_CONFIG names, else none. Raises ConfigError with every error, one a line."""
    problems = Problems()
    if path is None and environ.get("STROM_CONFIG"):
        path = Path(environ["STROM_CONFIG"])
    document = read_table(Document, _read_file(path) if path else {}, "", problems)
    if _password(document.shared.url):
        problems.add("shared.url", "a password never stands in the file: put the whole URL into STROM_SHARED_URL")
    if store_password(document.store.url):
        problems.add("store.url", BELONGS_ELSEWHERE)
    document = _with_variables(document, environ, problems)
    document = _with_flags(document, overrides, problems)
    settings = _resolve(document, overrides, Environment(environ, problems))
    _check_access(settings, problems)
    if problems.errors:
        raise ConfigError("\n".join(problems.errors))
    _warn(settings, problems)
    return msgspec.structs.replace(settings, warnings=tuple(problems.warnings))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or 'not a file'}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: no valid TOML: {error}") from None


def _with_variables(document: Document, environ: Mapping[str, str], problems: Problems) -> Document:
    for variable, (section, key) in VARIABLES.items():
        text = environ.get(variable, "").strip()
        if text:
            value = text.lower() if key in ("log_level", "log_format", "access_log", "required", "reasoning") else text
            document = _with(document, (section, key), value, variable, problems)
    return document


def _with_flags(document: Document, overrides: Overrides, problems: Problems) -> Document:
    for key in ("host", "port", "workers", "log_level"):
        value = getattr(overrides, key)
        if value is not None:
            document = _with(document, ("server", key), value, f"--{key.replace('_', '-')}", problems)
    document = _with_tls(document, overrides)
    if overrides.allow_unauthenticated:
        required = document.auth.required if document.auth.required is True else False
        auth = msgspec.structs.replace(document.auth, required=required, allow_unauthenticated=True)
        document = msgspec.structs.replace(document, auth=auth)
    return document


def _with_tls(document: Document, overrides: Overrides) -> Document:
    tls = {"cert_file": overrides.tls_cert, "key_file": overrides.tls_key}
    given = {key: value for key, value in tls.items() if value is not None}
    changed = msgspec.structs.replace(document.server.tls, **given)
    server = msgspec.structs.replace(document.server, tls=changed)
    return msgspec.structs.replace(document, server=server)


def _with(document: Document, place: tuple[str, str], value: object, source: str, problems: Problems) -> Document:
    """The document with one value replaced; `source` stands for its path in an error."""
    section, key = place
    hint = get_type_hints(_SECTIONS[section], include_extras=True)[key]
    try:
        converted = msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        problems.add(source, explain(hint, value, error))
        return document
    changed = msgspec.structs.replace(getattr(document, section), **{key: converted})
    return msgspec.structs.replace(document, **{section: changed})


def _resolve(document: Document, overrides: Overrides, environment: Environment) -> Settings:
    problems = environment.problems
    _check_urls(document, problems)
    if document.server.routing_block in _RESERVED:
        problems.add("server.routing_block", "is a name the protocols use themselves")
    check_listening(document.server, problems)
    providers = resolve_providers(document.providers, environment)
    add_backends(overrides.backends, providers, environment)
    models = resolve_models(document.models, providers, problems)
    check_policies(document.policies, problems)
    keys = resolve_keys(document.keys, document.policies, environment)
    store_keys = resolve_store(document.store, environment)
    if password := _password(document.shared.url):
        environment.secrets.append(Secret(password))
    return Settings(
        server=document.server,
        store_url=document.store.url,
        store=document.store,
        store_keys=store_keys,
        shared_url=document.shared.url,
        shared=document.shared,
        auth=document.auth,
        telemetry=document.telemetry,
        limits=document.limits,
        providers=providers,
        models=models,
        policies=document.policies,
        keys=keys,
        secrets=tuple(environment.secrets),
    )


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""


def _check_urls(document: Document, problems: Problems) -> None:
    if document.shared.url != "memory://" and not _leads_to_redis(document.shared.url):
        problems.add("shared.url", "expected memory://, redis://HOST:PORT/DATABASE or rediss://… (with TLS)")


def _leads_to_redis(url: str) -> bool:
    """With a number for the database: a client of Redis takes anything else for 0 and says nothing."""
    try:
        parts = urlsplit(url)
        database = parts.path.strip("/")
        numbers = parts.port is None or parts.port > 0
    except ValueError:
        return False
    return parts.scheme in ("redis", "rediss") and numbers and (not database or database.isdecimal())


OPEN_TO_ALL = """anyone who reaches {host} could use this gateway and its backends' keys. Ask for keys (required = true, and \
`strom keys create NAME`), listen on 127.0.0.1, or say that you want it: allow_unauthenticated = true beside it, or the flag \
--allow-unauthenticated"""


def _check_access(settings: Settings, problems: Problems) -> None:
    """No address that others can reach is served without keys, unless that is said in so many words."""
    if not settings.auth_required and not settings.on_loopback and not settings.auth.allow_unauthenticated:
        problems.add("auth.required", OPEN_TO_ALL.format(host=settings.server.host))


def _warn(settings: Settings, problems: Problems) -> None:
    if settings.auth.required is False and not settings.on_loopback:
        problems.warn("auth.required", f"anyone who reaches {settings.server.host} can use this gateway")
