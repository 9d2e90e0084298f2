"""`--tools FILE`: the public functions of a Python file as tools of a chat. The file is run, as its user asked."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from strom.client.tools import Tool, as_tool
from strom.core.errors import ConfigError


def load_tools(path: Path) -> list[Tool]:
    """Functions that are defined there, and what `strom.tool` made. Raises ConfigError."""
    module = _run(path)
    found: list[Tool] = []
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if name.startswith("_") or not (own or isinstance(value, Tool)):
            continue
        try:
            found.append(as_tool(value))
        except TypeError as error:
            raise ConfigError(f"--tools {path}: {error}") from None
    if not found:
        raise ConfigError(f"--tools {path}: there is no public function in it")
    return found


def _run(path: Path) -> ModuleType:
    name = f"strom_chat_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"--tools {path}: expected a Python file, NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (OSError, SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"--tools {path}: {type(error).__name__}: {error}") from None
    return module
