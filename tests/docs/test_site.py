"""The documentation is whole: every public name has its entry, every command can be typed, no link is dead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import strom
from strom.cli.main import cli
from tests.docs.snippets import DOCS, ROOT, Block, blocks

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:^|\s|/)strom (?P<arguments>[a-z][^#|>]*)")
FOLDERS = ("tutorial", "how-to", "coming-from", "reference")


def all_pages() -> list[Path]:
    return [DOCS / "index.md", *sorted(page for name in FOLDERS for page in (DOCS / name).rglob("*.md"))]


def test_every_public_name_is_in_the_reference() -> None:
    entries = {
        name
        for page in (DOCS / "reference").glob("*.md")
        for name in re.findall(r"^::: strom\.(\w+)$", page.read_text(), re.MULTILINE)
    }
    assert entries == {name for name in strom.__all__ if not name.startswith("_")}


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    missing = [name for page in all_pages() if (name := str(page.relative_to(DOCS))) not in navigation]
    assert missing == [], "add them to `nav` in mkdocs.yml, so that readers find them"


def commands() -> list[tuple[str, list[str]]]:
    """Every `strom …` in a console block of the library's pages."""
    found = []
    for page in all_pages():
        for block in blocks(page):
            if block.language == "console":
                found += [(page.name, words) for words in _commands_of(block)]
    return found


def _commands_of(block: Block) -> list[list[str]]:
    return [shlex.split(match["arguments"]) for match in map(COMMAND.search, block.text.splitlines()) if match]


def test_commands_are_found() -> None:
    assert ("start.md", ["serve"]) in commands()


@pytest.mark.parametrize(("page", "words"), commands())
def test_commands_can_be_typed(page: str, words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
    command.make_context(command.name, words)
