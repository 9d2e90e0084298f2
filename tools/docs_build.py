"""What the documentation needs besides Markdown: doctests in docstrings as code, and no dead links out of its folder.

It is a hook of MkDocs (`on_page_markdown`) and an extension of Griffe (`Doctests`) at once; mkdocs.yml names it twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\.?/[^)#\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links to files of the repository that are no pages become text: the site has no address for them."""
    docs = Path(config["docs_dir"]).resolve()
    here = Path(page.file.abs_src_path).parent

    def plain(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        outside = target.exists() and not target.is_relative_to(docs)
        return link[1] if outside else link[0]

    return _LINK.sub(plain, markdown)


class Doctests(griffe.Extension):
    """Doctests stand in docstrings without a heading; as Markdown they would be quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Every run of lines from `>>>` to the next empty line in a fence of its own."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if line.startswith(">>> ") and not inside:
            lines.append("```pycon")
            inside = True
        if inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
