"""A release: the same bytes each time, hashes of all its parts, and a signature that holds for these parts alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.release import NAMESPACE, Refused, release

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore")
WHO = "somebody@example.org"


def git(at: Path, *command: str) -> None:
    names = {f"GIT_{role}_{part}": "x" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    subprocess.run(["git", *command], cwd=at, env=os.environ | names, check=True, capture_output=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one commit."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PARTS:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src/strom", tree / "src/strom", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "requirements").mkdir()
    shutil.copy(ROOT / "requirements/run.lock", tree / "requirements")
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "x")
    return tree


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("keys") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def is_signed(folder: Path, key: Path) -> bool:
    signers = key.with_suffix(".signers")
    signers.write_text(f"{WHO} {key.with_suffix('.pub').read_text()}")
    command = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        str(signers),
        "-I",
        WHO,
        "-n",
        NAMESPACE,
        "-s",
        str(folder / "SHA256SUMS.sig"),
    ]
    return not subprocess.run(
        command, input=(folder / "SHA256SUMS").read_bytes(), check=False, capture_output=True
    ).returncode


def is_whole(folder: Path) -> bool:
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    return not subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode


def test_a_release_is_the_same_each_time_and_signed(tree: Path, key: Path, tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    for folder in (once, again):
        release(tree, folder, key, tagged=False)
    assert (once / "SHA256SUMS").read_text() == (again / "SHA256SUMS").read_text()
    assert {path.suffix for path in once.iterdir()} == {".whl", ".gz", ".lock", "", ".sig"}
    assert is_whole(once)
    assert is_signed(once, key)
    [wheel] = once.glob("*.whl")
    lock, hashed = (once / "install.lock").read_text(), (once / "SHA256SUMS").read_text()
    assert lock.startswith((tree / "requirements/run.lock").read_text())
    assert f"./{wheel.name} \\\n    --hash=sha256:{hashed[: hashed.index(f'  {wheel.name}')][-64:]}\n" in lock

    with wheel.open("ab") as file:
        file.write(b"x")
    assert not is_whole(once)
    (again / "SHA256SUMS").write_text(hashed.replace("0", "1"))
    assert not is_signed(again, key)


def test_only_what_is_committed_and_named_is_released(tree: Path, key: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="tag v"):
        release(tree, tmp_path / "a", key, tagged=True)
    version = next((tmp_path / "a").glob("*.whl")).name.split("-")[1]
    git(tree, "tag", f"v{version}")
    release(tree, tmp_path / "b", key, tagged=True)
    with pytest.raises(Refused, match="not empty"):
        release(tree, tmp_path / "b", key, tagged=True)
    with pytest.raises(Refused, match="no such key"):
        release(tree, tmp_path / "c", tmp_path / "none", tagged=True)
    (tree / "more").touch()
    with pytest.raises(Refused, match="not committed"):
        release(tree, tmp_path / "c", key, tagged=True)
    (tree / "more").unlink()
