"""The code that stands in Markdown pages, in the order of a page.

A page is one program: its `python` blocks run one after the other in one namespace. A `text` block right behind a `python`
block is what that block prints; `…` in it stands for anything. A block with `title="name.ext"` is a file that the program
finds in its folder. A `python` block with another library's name as its title is that library's, for comparison.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<head>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')


class Block(msgspec.Struct, frozen=True):
    """`line` is that of its first line of code; `behind` what stands between the block before and this one."""

    language: str
    title: str
    text: str
    line: int
    behind: str

    @property
    def file_name(self) -> str:
        return self.title if re.fullmatch(r"[\w./-]+\.\w+", self.title) else ""


def blocks(page: Path) -> list[Block]:
    source = page.read_text("utf-8")
    found, end = [], 0
    for match in _FENCE.finditer(source):
        language = match["head"].split(" ")[0]
        title = _TITLE.search(match["head"])
        line = source.count("\n", 0, match.start("body")) + 1
        text = textwrap.dedent(match["body"])
        found.append(Block(language, title[1] if title else "", text, line, source[end : match.start()].strip()))
        end = match.end()
    return found


def pages() -> list[Path]:
    """Every page with Python in it."""
    return [page for page in sorted(DOCS.rglob("*.md")) if any(block.language == "python" for block in blocks(page))]


def matches(expected: str, printed: str) -> bool:
    """But for white space at the ends of lines."""
    pattern = ".*?".join(re.escape(piece) for piece in _trimmed(expected).split("…"))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
