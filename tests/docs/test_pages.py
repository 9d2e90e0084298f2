"""Every Python block of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.agreement.backend import ScriptedBackend
from tests.docs.snippets import DOCS, Block, blocks, matches, pages

GATEWAY = "http://127.0.0.1:8080"
FOREIGN = {"LiteLLM": "litellm", "LangChain": "langchain_openai", "Mojentic": "mojentic"}
"""Titles of blocks that belong to libraries which the tests do not install: those are only compiled."""
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NORIS_API_KEY")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_page(page: Path, backend: ScriptedBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "a-key-for-the-page")
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    found = blocks(page)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.file_name:
            write(folder / block.file_name, block.text)
        elif block.language == "python":
            printed = run(block, module.__dict__, backend.url, page)
            if after is not None and after.language == "text" and not after.title and not after.behind:
                assert matches(after.text, printed), f"{page}:{block.line} prints\n{printed}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(block: Block, namespace: dict[str, Any], url: str, page: Path) -> str:
    """What the block prints, with the scripted backend in place of the servers that the page names."""
    code = compile("\n" * (block.line - 1) + redirected(block.text, url), str(page), "exec", dont_inherit=True)
    foreign = FOREIGN.get(block.title)
    if foreign is not None and importlib.util.find_spec(foreign) is None:
        return ""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, namespace)
    return output.getvalue()


def redirected(text: str, url: str) -> str:
    """A model without an address of its own, or with that of the gateway, is the scripted one."""
    text = re.sub(r'Model\(("[^"]+")(?=[,)])(?!.*base_url)', rf'Model(\1, base_url="{url}"', text.replace(GATEWAY, url))
    return re.sub(r"(openai\.\w*OpenAI|anthropic\.\w*Anthropic)\(\)", lambda made: _official(made[1], url), text)


def _official(name: str, url: str) -> str:
    base = f"{url}/v1" if name.startswith("openai") else url
    return f'{name}(base_url="{base}")'


def test_a_page_that_prints_something_else_is_noticed() -> None:
    assert matches("a … c\n", "a b\nb c")
    assert not matches("a", "a b")
