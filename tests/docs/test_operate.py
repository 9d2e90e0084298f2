"""The page on operating a gateway is a session at a terminal: its file and its commands are run as they stand.

Its own server and its port are replaced by those of the test. A `shell` block with a title is what runs meanwhile; a `text`
block is what the block before it prints, `…` standing for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.snippets import DOCS, ROOT, Block, blocks, matches
from tests.e2e.processes import upstream

PAGE = DOCS / "how-to" / "operate.md"
BACKEND, PLACE = "127.0.0.1:8000", "127.0.0.1:8080"


def test_the_page_works_as_it_stands(tmp_path: Path, free_port: int) -> None:
    bash = f'#!/bin/sh\nexec {sys.executable} -m strom "$@"\n'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "strom").write_text(bash)
    (tmp_path / "bin" / "strom").chmod(0o755)
    with upstream() as behind:
        found = [fitted(block, behind.port, free_port) for block in blocks(PAGE)]
        script = "\n".join(["set -euo pipefail", *lines_of(found, tmp_path, free_port)])
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for number, block in enumerate(found):
        if block.language == "text":
            printed = (tmp_path / f"out.{number - 1}").read_text()
            assert matches(block.text, printed), f"line {block.line} of the page: this was printed\n{printed}"
    assert (tmp_path / "calls.csv").read_text().startswith("trace_id,status,")


def fitted(block: Block, backend: int, port: int) -> Block:
    text = block.text.replace(BACKEND, f"127.0.0.1:{backend}").replace(PLACE, f"127.0.0.1:{port}")
    return Block(
        block.language, block.title, re.sub(r"^port = 8080$", f"port = {port}", text, flags=re.M), block.line, ""
    )


def lines_of(found: list[Block], folder: Path, port: int) -> Iterator[str]:
    """The script, one shell for all of it, so that variables last."""
    for number, block in enumerate(found):
        if block.file_name:
            (folder / block.file_name).write_text(block.text)
        elif block.language == "shell" and block.title:
            yield f"{block.text.strip()} >serve.out 2>&1 &\ntrap 'kill $!; wait $!' EXIT"
            yield f"curl -s -o /dev/null --retry 100 --retry-delay 1 --retry-connrefused http://127.0.0.1:{port}/healthz"
        elif block.language == "shell":
            yield f"{{\n{block.text}\n}} >out.{number}"
