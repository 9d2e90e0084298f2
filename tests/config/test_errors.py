"""A bad configuration: every error at once, each with its path, none with a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.config.load import load_settings
from strom.config.settings import Overrides
from strom.core.errors import ConfigError

KEY = f'[[keys]]\nname = "k"\nkey_sha256 = "{"0" * 64}"'
PROVIDER = '[[providers]]\nname = "a"\nbase_url = "http://h"\n'
MODEL = PROVIDER + '[[models]]\nname = "m"\n[[models.endpoints]]\nid = "1"\nprovider = "a"\n'


def errors(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    path = tmp_path / "strom.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(path, Overrides(), environ or {})
    return caught.value.message.splitlines()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # unknown names
        ("[server]\nhots = 1", "server.hots: unknown key; did you mean 'host'?"),
        ("[servers]\nhost = 1", "servers: unknown key; did you mean 'server'?"),
        ("[server]\nzzz = 1", "server.zzz: unknown key"),
        ('[server]\n"a b" = 1', "server.'a b': unknown key"),
        (PROVIDER + "[providers.timeouts]\nidel_s = 1", "providers[0].timeouts.idel_s: unknown key; did you mean 'idle_s'?"),
        (
            PROVIDER + "[providers.quirks]\ndone_requird = false",
            "providers[0].quirks.done_requird: unknown key; did you mean 'done_required'?",
        ),
        # wrong types and ranges
        ("server = 1", "server: expected a table"),
        ("providers = 1", "providers: expected a list of tables"),
        ("providers = [1]", "providers[0]: expected a table"),
        ('[server]\nport = "x"', "server.port: expected int, got str"),
        ("[server]\nport = 70000", "server.port: expected int <= 65535"),
        ("[server]\nheartbeat_s = 0", "server.heartbeat_s: expected number > 0.0"),
        ("[server]\nhost = 1", "server.host: expected text that is not empty"),
        ('[server]\nreasoning = "nativ"', "server.reasoning: expected one of native, text, drop; did you mean 'native'?"),
        ('[server]\nrouting_block = "a b"', "server.routing_block: expected letters, digits, dashes and underscores"),
        ('[server]\nrouting_block = "usage"', "server.routing_block: is a name the protocols use themselves"),
        ('[auth]\nrequired = "yes"', "auth.required: expected one of auto, true, false"),
        ("[auth]\nrequired = 1", "auth.required: expected one of auto, true, false"),
        (PROVIDER + "quirks = 1", "providers[0].quirks: expected table, got int"),
        (PROVIDER + '[providers.quirks]\nimages = "no"', "providers[0].quirks.images: expected bool, got str"),
        (MODEL + 'weight = 0', "models[0].endpoints[0].weight: expected number > 0.0"),
        (
            MODEL + 'price = { input = -1, output = 1, currency = "EUR" }',
            "models[0].endpoints[0].price.input: expected number >= 0.0",
        ),
        (
            MODEL + 'price = { input = 1, output = 1, currency = "euro" }',
            "models[0].endpoints[0].price.currency: expected three capital letters, like EUR",
        ),
        (MODEL + "price = { input = 1, output = 1 }", "models[0].endpoints[0].price.currency: is missing"),
        (MODEL.replace('"m"', '"m"\naliases = [1]'), "models[0].aliases[0]: expected str, got int"),
        # references
        (MODEL + '[[models.endpoints]]\nprovider = "b"', "models[0].endpoints[1].provider: there is no provider 'b'"),
        (
            MODEL.replace('name = "a"', 'name = "local"').replace('provider = "a"', 'provider = "lokal"'),
            "models[0].endpoints[0].provider: there is no provider 'lokal'; did you mean 'local'?",
        ),
        (PROVIDER + '[[models]]\nname = "m"', "models[0].endpoints: expected at least one [[models.endpoints]]"),
        (PROVIDER + 'kind = "olama"', "providers[0].kind: unknown kind 'olama'; did you mean 'ollama'?"),
        (
            PROVIDER + 'protocol = "openai"',
            "providers[0].protocol: expected one of openai-chat, openai-responses, anthropic, ollama; "
            "did you mean 'openai-chat'?",
        ),
        # names that stand twice
        (PROVIDER + PROVIDER, "providers[1].name: 'a' is already the name of providers[0]"),
        (
            MODEL + '[[models.endpoints]]\nid = "1"\nprovider = "a"',
            "models[0].endpoints[1].id: '1' is already used at models[0].endpoints[0].id",
        ),
        (
            MODEL + '[[models]]\nname = "n"\naliases = ["m"]\nendpoints = [{ provider = "a" }]',
            "models[1].aliases[0]: 'm' is already used at models[0].name",
        ),
        ('[[policies]]\nid = "p"\n[[policies]]\nid = "p"', "policies[1].id: 'p' is already used at policies[0].id"),
        ('[[policies]]\nid = ""', "policies[0].id: expected text that is not empty"),
        # patterns
        ('[[policies]]\nid = "p"\nregions = ["eu-["]', "policies[0].regions[0]: the bracket in 'eu-[' is not closed"),
        ('[[policies]]\nid = "p"\nretentions = [""]', "policies[0].retentions[0]: an empty pattern matches nothing"),
        (
            '[[policies]]\nid = "p"\nsovereignty_classes = ["eu owned"]',
            "policies[0].sovereignty_classes[0]: a pattern holds no spaces and no control characters",
        ),
        # addresses
        ('[[providers]]\nname = "a"', "providers[0].base_url: is missing: kind 'generic' has no address of its own"),
        ('[[providers]]\nname = "a"\nbase_url = "h:1"', "providers[0].base_url: expected a URL that begins with http:// or https://"),
        (
            '[[providers]]\nname = "a/b"\nbase_url = "http://h"',
            "providers[0].name: expected letters, digits, dots, dashes and underscores",
        ),
        (
            '[store]\nurl = "sqlite://strom.db"',
            "store.url: expected sqlite:///file.db (relative) or sqlite:////folder/file.db (absolute)",
        ),
        ('[store]\nurl = "postgresql://h"', "store.url: expected postgresql://user@host/database"),
        (
            '[shared]\nurl = "postgres://h/0"',
            "shared.url: expected memory://, redis://HOST:PORT/DATABASE or rediss://… (with TLS)",
        ),
        # keys
        ('[[keys]]\nname = "k"', "keys[0]: expected exactly one of key_env, key_file and key_sha256"),
        ('[[keys]]\nname = "k"\nkey_env = "NONE"', "keys[0].key_env: the environment variable NONE is not set"),
        ('[[keys]]\nname = "k"\nkey_sha256 = "abc"', "keys[0].key_sha256: expected the 64 hexadecimal digits of a SHA-256"),
        (
            KEY + '\npolicy = "p"',
            "keys[0].policy: there is no policy 'p'",
        ),
        (
            KEY + '\nlimits = { budget = { amount = 1, currency = "EUR", per = "year" } }',
            "keys[0].limits.budget.per: expected one of day, week, month",
        ),
        (
            KEY + '\nlimits = { concurrent = 0 }',
            "keys[0].limits.concurrent: expected int >= 1",
        ),
        (
            KEY + f'\n[[keys]]\nname = "l"\nkey_sha256 = "{"0" * 64}"',
            "keys[1]: is the same key as keys[0]",
        ),
        (
            '[[providers]]\nname = "o"\nkind = "gemini"',
            "providers[0].api_key_env: kind 'gemini' demands a key: set GEMINI_API_KEY or GOOGLE_API_KEY, "
            "or name another variable here",
        ),
        (
            '[[providers]]\nname = "o"\nkind = "openai"\napi_key_env = "NONE"',
            "providers[0].api_key_env: the environment variable NONE is not set",
        ),
    ],
)  # fmt: skip
def test_error(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text) == [error]


def test_every_error_at_once(tmp_path: Path) -> None:
    found = errors(
        tmp_path,
        """
        [server]
        prot = 1
        port = -1
        [[providers]]
        kind = "nothing-like-it"
        [[models]]
        [[models.endpoints]]
        [[policies]]
        [[keys]]
        """,
        {"STROM_WORKERS": "many", "STROM_PORT": "1"},
    )
    assert [line.partition(":")[0] for line in found] == [
        "server.prot",
        "server.port",
        "providers[0].name",
        "models[0].endpoints[0].provider",
        "models[0].name",
        "policies[0].id",
        "keys[0].name",
        "STROM_WORKERS",
        "providers[0].kind",
        "keys[0]",
    ]
    assert "known are mlx-lm, omlx," in found[-2]


@pytest.mark.parametrize(
    "text",
    [
        PROVIDER + 'api_key = "sk-secret"',
        PROVIDER + 'api_key_env = "sk-secret"',
        PROVIDER + 'token = "sk-secret"',
        PROVIDER + 'kind = "openai"\napi_key_env = "sk-secret"',
        PROVIDER + 'region = ["sk-secret"]',
        '[[keys]]\nname = "k"\nkey_sha256 = "sk-secret"',
        '[[keys]]\nname = "k"\nkey = "sk-secret"',
        '[[providers]]\nname = "a"\nbase_url = "http://x:sk-secret@h"',
        '[store]\nurl = "postgresql://u:sk-secret@h/db"',
        '[store]\nurl = "sk-secret"',
        '[shared]\nurl = "redis://:sk-secret@h"',
    ],
)
def test_no_error_repeats_what_may_be_a_key(tmp_path: Path, text: str) -> None:
    found = errors(tmp_path, text)
    assert found
    assert "sk-secret" not in "\n".join(found)


def test_a_literal_key_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (error,) = errors(tmp_path, PROVIDER + 'api_key = "sk-1"')
    assert error == (
        "providers[0].api_key: a key never stands in the file: put it into an environment variable and name that in "
        "api_key_env, or into a file"
    )
    assert errors(tmp_path, '[[keys]]\nname = "k"\nkey = "sk-1"')[0].endswith("name that in key_env, or into a file")
    (error,) = errors(tmp_path, '[server]\ntoken = "x"')
    assert error.endswith("name that in api_key_env, or into a file")


def test_a_key_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    text = PROVIDER + 'api_key_env = "K"'
    (error,) = errors(tmp_path, text, {"K": "two words"})
    assert error == "providers[0].api_key_env: the environment variable K holds spaces or characters that no key has"


def test_errors_of_variables_and_flags_are_named_by_them() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, Overrides(port=70000), {"STROM_PORT": "x", "STROM_REASONING": "drip"})
    assert caught.value.message.splitlines() == [
        "STROM_PORT: expected int, got str",
        "STROM_REASONING: expected one of native, text, drop; did you mean 'drop'?",
        "--port: expected int <= 65535",
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load_settings(path, Overrides(), {})
        return caught.value.message

    broken, binary = tmp_path / "broken.toml", tmp_path / "binary.toml"
    broken.write_text("[server\n")
    binary.write_bytes(b"\xff\xfe")
    assert message(tmp_path / "none.toml").endswith("none.toml: cannot be read: No such file or directory")
    assert message(tmp_path).endswith("cannot be read: Is a directory")
    assert "broken.toml: no valid TOML: " in message(broken)
    assert "line 1" in message(broken)
    assert message(binary).endswith("binary.toml: is not UTF-8 text")
