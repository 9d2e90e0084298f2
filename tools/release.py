"""Builds what is published as a release, and signs it.  release.py --key FILE [--folder FOLDER] [--no-tag]

Into the folder (default build/release), which must be empty:

    strom-…-py3-none-any.whl, strom-….tar.gz   built from the commit that is checked out; the same commit gives the same bytes
    install.lock                               everything that an installation consists of, with hashes: requirements/run.lock
                                               and the wheel. `pip install --require-hashes -r install.lock`
    sbom.json                                  the same as a list (CycloneDX), if `make sbom` has made it
    SHA256SUMS, SHA256SUMS.sig                 the hashes of all these files, and the signature over them (an SSH key,
                                               `ssh-keygen -Y sign`, namespace `strom-release`)

Nothing is published. Refused are a tree with changes that are not committed, and a commit without the tag v<version>.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "strom-release"


class Refused(Exception):
    """What is to be put right first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--key", type=Path, required=True, help="private SSH key, or the public one of a key in the agent"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build/release")
    parser.add_argument("--no-tag", action="store_true", help="a rehearsal: the commit needs no tag")
    options = parser.parse_args()
    try:
        release(ROOT, options.folder.resolve(), options.key, tagged=not options.no_tag)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    print(f"{options.folder}: {', '.join(sorted(path.name for path in options.folder.iterdir()))}")
    return 0


def release(root: Path, folder: Path, key: Path, *, tagged: bool) -> None:
    """Raises Refused."""
    if _run("git", "status", "--porcelain", at=root):
        raise Refused("There are changes that are not committed.")
    if not key.is_file():
        raise Refused(f"{key}: there is no such key. `ssh-keygen -t ed25519` makes one.")
    if folder.exists() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty.")
    wheel = _build(root, folder)
    version = wheel.name.split("-")[1]
    if tagged and f"v{version}" not in _run("git", "tag", "--points-at", "HEAD", at=root).split():
        raise Refused(f"The commit that is checked out does not bear the tag v{version}.")
    lock = (root / "requirements/run.lock").read_text()
    (folder / "install.lock").write_text(f"{lock}./{wheel.name} \\\n    --hash=sha256:{_sha256(wheel)}\n")
    if (root / "build/sbom.json").is_file():
        shutil.copy(root / "build/sbom.json", folder)
    sums = folder / "SHA256SUMS"
    files = sorted(folder.iterdir())
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in files))
    _run("ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(sums), at=folder)


def _build(root: Path, folder: Path) -> Path:
    """The wheel; the archive of the sources lies beside it."""
    when = _run("git", "log", "-1", "--format=%ct", at=root).strip()
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), at=root, SOURCE_DATE_EPOCH=when)
    [wheel] = folder.glob("*.whl")
    return wheel


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str, at: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=at, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{command[0]} {command[1]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
