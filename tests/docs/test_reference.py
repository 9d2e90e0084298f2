"""The pages of docs/reference that are made from the program are those of this program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from strom.cli.main import cli
from strom.server.platform_operations import OPERATIONS
from tests.cli.conftest import Strom, strom
from tools.reference import command_line, pages

__all__ = ["strom"]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.name))
def test_a_page_is_current(path: Path) -> None:
    assert path.read_bytes() == pages()[path], "run `make reference`"


def test_every_option_of_every_command_is_on_the_page() -> None:
    page = command_line()
    for name in cli.commands:
        shown = CliRunner().invoke(cli, [name, "--help"]).output
        assert all(
            word in page for word in shown.split() if word.startswith("--") and word not in ("--help", "--version")
        )


def test_the_program_prints_the_document(strom: Strom, tmp_path: Path) -> None:
    path = tmp_path / "openapi.json"
    assert strom("openapi", "-o", str(path)).code == 0
    found = json.loads(path.read_bytes())
    listed = [(method.upper(), where) for where, methods in found["paths"].items() for method in methods]
    assert sorted(listed) == sorted((each.method, each.path) for each in OPERATIONS)
    refused = strom("openapi", "-o", str(tmp_path / "none" / "x"))
    assert (refused.code, "cannot be written" in refused.err) == (1, True)


def test_every_description_of_the_document_leads_somewhere() -> None:
    from strom.server.platform_openapi import make_document

    text = json.dumps(make_document())
    schemas = make_document()["components"]["schemas"]
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(schemas)
    assert set(schemas) - names == set(), "a schema that nothing refers to"
