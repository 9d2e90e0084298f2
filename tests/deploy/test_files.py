"""The files of deploy/ name only what there is: ports, paths, flags, settings, variables, metrics, packages.

What linters said of them stands in their heads; linters that are installed here are asked again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from strom.cli.main import cli
from strom.config.load import VARIABLES, load_settings
from strom.config.schema import ServerSettings
from strom.config.settings import Overrides, Settings
from strom.supervisor import LATE_S
from strom.telemetry import families
from strom.telemetry.families import Family
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONFIGS = [DEPLOY / "strom.toml", DEPLOY / "compose/strom.toml", DEPLOY / "kubernetes/strom.toml"]
HEADED = [
    *CONFIGS,
    DEPLOY / "systemd/strom.service",
    DEPLOY / "nginx/strom.conf",
    DEPLOY / "docker/Dockerfile",
    DEPLOY / "compose/compose.yaml",
    DEPLOY / "compose/nginx.conf",
    *sorted((DEPLOY / "kubernetes").glob("*.yaml")),
]
SECRETS = {"STROM_OPERATOR_KEY": "sk-operator-0000000000000000", "BACKEND_API_KEY": "x", "PGPASSWORD": "x"}


def settings(path: Path) -> Settings:
    return load_settings(path, Overrides(), SECRETS)


def manifests() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
    return found


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests() if each["kind"] == kind]
    return found


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    return loaded


def container() -> dict[str, Any]:
    (found,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("path", HEADED, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_each_says_what_was_run_and_what_only_linted(path: Path) -> None:
    head = path.read_text()[:1500]
    assert "Run here" in head or "Only linted" in head


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_configurations_are_right(path: Path) -> None:
    found = settings(path)
    assert not found.warnings
    assert found.keys[0].admin


def test_every_process_counts_in_the_local_share() -> None:
    """`on_failure = "local"` divides by replicas_hint."""
    pods = manifest("HorizontalPodAutoscaler")["spec"]["maxReplicas"]
    kubernetes, composed = (settings(DEPLOY / name / "strom.toml") for name in ("kubernetes", "compose"))
    assert kubernetes.shared.replicas_hint == pods * kubernetes.server.workers
    assert composed.shared.replicas_hint == 2 * composed.server.workers


def commands() -> Iterator[list[str]]:
    unit = (DEPLOY / "systemd/strom.service").read_text()
    found = re.search(r"^ExecStart=/opt/strom/bin/strom (.*)$", unit, re.MULTILINE)
    assert found
    yield found[1].split()
    docker = re.search(r"^CMD (\[.*\])$", (DEPLOY / "docker/Dockerfile").read_text(), re.MULTILINE)
    assert docker
    yield yaml.safe_load(docker[1])
    yield container()["args"]
    yield manifest("Job")["spec"]["template"]["spec"]["containers"][0]["args"]
    yield compose()["services"]["upgrade"]["command"]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_commands_exist(words: list[str]) -> None:
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest.pop(0))
        assert found is not None
        command = found
    context = click.Context(command)
    flags = {flag for parameter in command.get_params(context) for flag in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= flags


def test_variables_exist() -> None:
    known = {*VARIABLES, "STROM_CONFIG", "STROM_OPERATOR_KEY"}
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix not in (".json", ".yml"):
            assert set(re.findall(r"\bSTROM_[A-Z_]+\b", path.read_text())) <= known, path
    needed = {"STROM_STORE_URL", "STROM_SHARED_URL", "STROM_OPERATOR_KEY", "BACKEND_API_KEY"}
    assert needed <= set(manifest("Secret")["stringData"])
    assert needed <= set(compose()["x-strom"]["environment"])
    asked = set(re.findall(r"\$\{([A-Z_]+)", (DEPLOY / "compose/compose.yaml").read_text()))
    assert asked == {line.partition("=")[0] for line in (DEPLOY / "compose/example.env").read_text().splitlines()[1:]}


def test_ports_agree() -> None:
    port = str(ServerSettings().port)
    dockerfile = (DEPLOY / "docker/Dockerfile").read_text()
    assert f"EXPOSE {port}" in dockerfile
    assert f"STROM_PORT={port}" in dockerfile
    assert container()["ports"] == [{"name": "http", "containerPort": int(port)}]
    assert container()["args"][-2:] == ["--port", port]
    assert compose()["x-strom"]["environment"]["STROM_PORT"] == port
    for site in ("nginx/strom.conf", "compose/nginx.conf"):
        servers = re.findall(r"^    server (\S+)", (DEPLOY / site).read_text(), re.MULTILINE)
        assert len(servers) == 2
        assert all(each.endswith(f":{port}") for each in servers)
        assert not any(
            re.match(r"[\d.]+:", each) for each in servers
        )  # names that lead nowhere, never somebody's address
    assert {f"{name}:{port}" for name in compose()["services"] if name.startswith("strom-")} == set(servers)


def test_paths_are_served() -> None:
    probes = [container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert probes == ["/healthz", "/healthz", "/readyz"]
    assert "/healthz" in (DEPLOY / "docker/Dockerfile").read_text()
    template = manifest("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert template["prometheus.io/path"] == "/metrics"


def test_stops_are_longer_than_what_they_wait_for() -> None:
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "systemd/strom.service").read_text(), re.MULTILINE))
    assert float(unit["TimeoutStopSec"]) > settings(CONFIGS[0]).server.shutdown_grace_s + LATE_S
    grace_s = settings(CONFIGS[1]).server.shutdown_grace_s + LATE_S
    assert seconds(compose()["x-strom"]["stop_grace_period"]) > grace_s
    pause = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    grace_s = settings(CONFIGS[2]).server.shutdown_grace_s + LATE_S
    assert manifest("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > pause + grace_s


@pytest.mark.parametrize("site", ["nginx/strom.conf", "compose/nginx.conf"])
def test_nginx_waits_longer_than_strom_and_closes_first(site: str) -> None:
    words = dict(re.findall(r"^\s*(\w+) ([^;]+);", (DEPLOY / site).read_text(), re.MULTILINE))
    server = ServerSettings()
    upstream = re.search(r"upstream strom \{.*?keepalive_timeout (\d+)s", (DEPLOY / site).read_text(), re.DOTALL)
    assert upstream
    assert float(upstream[1]) < server.keep_alive_s
    assert seconds(words["proxy_read_timeout"]) > 10 * server.heartbeat_s
    assert seconds(words["send_timeout"]) >= server.slow_reader_s
    assert int(words["client_max_body_size"].removesuffix("m")) * 1024 * 1024 > server.max_body_bytes
    expected = {
        "proxy_buffering": "off",
        "gzip": "off",
        "proxy_http_version": "1.1",
        "proxy_next_upstream": "error timeout",
    }
    assert {name: words[name] for name in expected} == expected


def test_kubernetes_objects_fit_together() -> None:
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert manifest("Job")["spec"]["template"]["metadata"]["labels"] != labels
    listed = set(manifest("Kustomization")["resources"])
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert listed == there - {"kustomization.yaml", "secret.example.yaml"}
    (metric,) = manifest("HorizontalPodAutoscaler")["spec"]["metrics"]
    known = {each.name for each in vars(families).values() if isinstance(each, Family)}
    assert metric["pods"]["metric"]["name"] in known
    state = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}["state"]
    journal = settings(CONFIGS[2]).store.journal_dir
    assert journal is not None
    assert journal.startswith(state)


def test_the_image_installs_what_was_tested() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    tested, installed = pins("dev.lock"), pins("deploy.lock")
    assert {"redis", "psycopg", "cryptography", "msgspec", "hatchling"} <= set(installed)
    assert {name: version for name, version in installed.items() if tested.get(name) != version} == {}
    dockerfile = (DEPLOY / "docker/Dockerfile").read_text()
    assert "--require-hashes -r requirements/deploy.lock" in dockerfile
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE))
    for name in {word for line in copied for word in line.split()}:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in (DEPLOY / "docker/Dockerfile.dockerignore").read_text()


def test_the_unit_is_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/strom.service").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
    assert all(re.match(r"[A-Z]\w+=", line) for line in lines)
    assert {"Type=notify", "KillMode=mixed", "ExecReload=/bin/kill -HUP $MAINPID"} <= set(lines)
    if (program := shutil.which("systemd-analyze")) is not None:
        unit = tmp_path / "strom.service"
        unit.write_text(text.replace("/opt/strom/bin/strom", "/bin/true"))
        done = subprocess.run(
            [program, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
