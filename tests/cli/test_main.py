"""Exit codes, help, mistakes and defects; `config check`; `serve` up to the gateway."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import click
import pytest

from strom import __version__
from strom.cli.backends import BackendCommand, backend_options, backends_of
from strom.cli.main import DEFECT, cli
from strom.config.settings import Backend
from strom.core.errors import GatewayError
from tests.cli.conftest import Outcome, Strom
from tests.patience import PATIENCE_S

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def test_help_and_version(strom: Strom) -> None:
    shown = strom("--help")
    assert shown.code == 0
    listed = re.findall(r"^  ([a-z]+)  ", shown.out, re.MULTILINE)
    assert [name for name in listed if name in cli.commands] == [
        "chat",
        "check",
        "config",
        "db",
        "keys",
        "models",
        "openapi",
        "policy",
        "providers",
        "record",
        "replay",
        "serve",
        "traces",
        "usage",
    ]
    assert strom("-h").out == shown.out
    assert strom("--version").out == f"strom {__version__}\n"


@pytest.mark.parametrize(
    "path",
    [["serve"], ["models"], ["traces", "list"], ["traces", "show"], ["traces", "tail"], ["usage"], ["config", "check"]],
)
def test_every_command_has_help(strom: Strom, path: list[str]) -> None:
    shown = strom(*path, "--help")
    assert shown.code == 0
    assert shown.out.startswith("Usage: strom " + " ".join(path))


@pytest.mark.parametrize(
    "arguments",
    [
        ["frob"],
        ["serve", "--port", "x"],
        ["serve", "--port", "70000"],
        ["serve", "--workers", "0"],
        ["serve", "--protocol", "ollama"],
        ["serve", "--backend", "http://h", "--protocol", "smtp"],
        ["config", "check"],
        ["traces", "show"],
        ["traces", "list", "--status", "broken"],
        ["traces", "list", "--since", "yesterday"],
        ["traces", "list", "--url", "http://h", "--store", "memory://"],
        ["traces", "list", "--api-key-env", "K"],
        ["models", "--url", "http://h", "--backend", "http://h"],
        ["models", "--config", "f", "--api-key-env", "K"],
        ["policy", "explain", "m", "--config", "f", "--url", "http://h"],
        ["db", "status", "--config", "f", "--store", "memory://"],
        ["traces", "export", "--json", "--format", "csv"],
    ],
)
def test_wrong_usage_is_2_and_says_so(strom: Strom, arguments: list[str]) -> None:
    shown = strom(*arguments)
    assert shown.code == 2
    assert "Error: " in shown.err
    assert "Traceback" not in shown.err


def test_only_what_a_command_needs_is_imported_for_help() -> None:
    program = (
        "import sys; from strom.cli.main import run; run(['--help']);"
        "print([m for m in ('msgspec', 'asyncio', 'sqlite3', 'strom.app', 'json') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


# --- errors --------------------------------------------------------------------------------------


@click.command("fail")
@click.argument("how")
def fail(how: str) -> None:
    kinds: dict[str, BaseException] = {
        "ours": GatewayError("Something is off."),
        "defect": KeyError("oops"),
        "interrupt": KeyboardInterrupt(),
    }
    raise kinds[how]


@pytest.fixture
def _failing_command() -> object:
    cli.add_command(fail)
    yield None
    del cli.commands["fail"]


@pytest.mark.usefixtures("_failing_command")
def test_errors_become_one_line_and_an_exit_code(strom: Strom, monkeypatch: pytest.MonkeyPatch) -> None:
    assert strom("fail", "ours") == Outcome(1, "", "strom: Something is off.\n")
    assert strom("fail", "defect") == Outcome(1, "", f"strom: KeyError: 'oops'\n{DEFECT}\n")
    assert strom("fail", "interrupt").code == 1
    monkeypatch.setenv("STROM_LOG_LEVEL", "debug")
    assert "Traceback" in strom("fail", "defect").err


def test_a_reader_that_leaves_early_is_no_defect() -> None:
    read, write = os.pipe()
    os.close(read)
    program = "from strom.cli.main import main; import sys; sys.argv = ['strom', '--help']; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert b"defect" not in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_the_module_runs() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "strom", "config", "check", "/no/such.toml"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "cannot be read" in ended.stderr


# --- config check --------------------------------------------------------------------------------


def test_check_a_good_file(strom: Strom, tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text('[[providers]]\nname = "a"\nbase_url = "http://h"\napi_key_env = "NONE"')
    assert strom("config", "check", str(path)) == Outcome(
        0,
        f"{path}: good (1 providers, 0 models, 0 policies, 0 keys)\n",
        "warning: providers[0].api_key_env: the environment variable NONE is not set\n",
    )


def test_check_a_bad_file(strom: Strom, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[server]\nprot = 1\nport = -1")
    assert strom("config", "check", str(path)) == Outcome(
        1, "", f"{path}: 2 errors\n  server.prot: unknown key; did you mean 'port'?\n  server.port: expected int >= 0\n"
    )
    path.write_text("server = 1")
    assert strom("config", "check", str(path)).err == f"{path}: 1 error\n  server: expected a table\n"


# --- serve ---------------------------------------------------------------------------------------


@click.command(cls=BackendCommand)
@backend_options
@click.pass_context
def show_backends(context: click.Context, /, **_: object) -> tuple[Backend, ...]:
    return backends_of(context)


@pytest.mark.parametrize(
    ("arguments", "backends"),
    [
        ("", ()),
        ("--backend u", (Backend("u"),)),
        ("--backend=u --protocol=ollama", (Backend("u", "ollama"),)),
        ("--protocol ollama --backend u", (Backend("u", "ollama"),)),
        (
            "--backend u --backend v --protocol anthropic --api-key-env K --backend w --api-key-env L",
            (Backend("u"), Backend("v", "anthropic", "K"), Backend("w", None, "L")),
        ),
    ],
)
def test_options_belong_to_the_backend_before_them(arguments: str, backends: tuple[Backend, ...]) -> None:
    assert show_backends.main(arguments.split(), standalone_mode=False) == backends


@pytest.mark.parametrize("arguments", ["--api-key-env K", "--backend u --protocol ollama --protocol anthropic"])
def test_options_that_belong_to_no_backend(arguments: str) -> None:
    with pytest.raises(click.UsageError):
        show_backends.main(arguments.split(), standalone_mode=False)


def test_serve_says_what_is_wrong(strom: Strom, tmp_path: Path) -> None:
    shown = strom("serve", "--config", str(tmp_path / "none.toml"))
    assert (shown.code, shown.err.count("\n")) == (1, 1)
    assert (
        strom("serve", "--backend", "localhost:1").err
        == "strom: --backend: expected a URL that begins with http:// or https://\n"
    )


def test_serve_runs_until_it_is_told_to_stop(free_port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strom", "serve", "--backend", "http://127.0.0.1:9", "--port", str(free_port)]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until_healthy(free_port, process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, out
    assert f"http://127.0.0.1:{free_port}".encode() in out
    assert (tmp_path / "strom.db").exists()


def wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S) as answer:
                assert answer.status == 200
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"no answer: {process.poll()}")
