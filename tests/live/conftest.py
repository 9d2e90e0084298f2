"""Fixtures of the live tests. They need a folder with the scripts of clients and backends: STROM_SHARED."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import programs


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = Path(os.environ.get("STROM_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    if not (folder / "clients" / "install.sh").is_file():
        pytest.skip("the scripts of the clients are missing: STROM_SHARED names the folder above them")
    return folder


@pytest.fixture(scope="session")
def clients(shared: Path) -> Path:
    """All that the scripts know, installed, but for the largest one."""
    return programs.install_clients(shared, ())


@pytest.fixture(scope="session")
def scripted(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with programs.scripted_backend(shared, tmp_path_factory.mktemp("scripted")) as url:
        yield url


@pytest.fixture(scope="module")
def embedded_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[programs.Gateway]:
    """`strom serve` as a newcomer starts it: nothing configured, nothing running."""
    with programs.serving(tmp_path_factory.mktemp("embedded")) as gateway:
        if "smollm2" not in gateway.program.output:
            pytest.skip("a model server runs on this machine's usual ports: the embedded model is not used")
        yield gateway


@pytest.fixture(scope="module")
def mlx_gateway(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[programs.Gateway]:
    """A gateway before a real mlx_lm.server with tiny weights."""
    folder = tmp_path_factory.mktemp("mlx")
    with programs.model_server(shared, "mlx.sh") as url, programs.serving(folder, "--backend", url) as gateway:
        yield gateway
