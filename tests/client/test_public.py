"""The public surface: names, cost of the import, examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import strom
import strom.client
from tests.patience import TRIES

PRODUCT = [
    "Model", "AsyncModel", "StreamContent", "StreamThinking", "StreamToolCall", "StreamToolResult", "StreamPartial",
    "StreamCompleted", "StreamError", "StreamErrorReason", "CompletionMetadata", "StreamMetrics", "Usage",
    "ToolCall", "Message", "Text", "Image", "Audio", "Video", "Document", "tool", "ToolOutput", "Retry", "Tracer",
    "StromError", "AuthError", "RateLimited", "TimedOut", "BadRequest", "ContentPolicy", "Unsupported",
    "ProviderError", "ToolError", "Cancelled", "StreamFailed", "CompletionConfig", "Reply",
]  # fmt: skip
REASONS = [
    "incomplete_completion", "incomplete_stream", "provider_error", "unexpected_tool_calls", "invalid_stream_event",
    "request_failed", "stream_events_unsupported", "cancelled",
]  # fmt: skip


def test_every_name_of_the_contract_is_there() -> None:
    for name in PRODUCT:
        assert getattr(strom, name) is not None
        assert name in dir(strom)
    assert [reason.value for reason in strom.StreamErrorReason] == REASONS
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = strom.Nothing


def test_errors_are_children_of_one() -> None:
    for name in PRODUCT:
        found = getattr(strom, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, strom.StromError)
    assert strom.StromError("words").message == "words"


def test_the_import_is_light() -> None:
    program = (
        "import sys, time; start = time.process_time(); import strom; spent = time.process_time() - start;"
        "heavy = {'pydantic', 'httpx', 'openai', 'asyncio', 'msgspec', 'uvloop', 'click', 'rich'} & set(sys.modules);"
        "print(spent); print(*heavy)"
    )
    taken: list[float] = []
    while not taken or min(taken) >= 0.1:
        assert len(taken) < TRIES, taken
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        spent, heavy = done.stdout.split("\n")[:2]
        taken.append(float(spent))
        assert heavy == ""


def test_a_model_pulls_no_optional_package() -> None:
    program = "import sys, strom; strom.Model('ollama/m'); print(*({'pydantic', 'httpx', 'openai', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"


MODULES = [module.name for module in pkgutil.iter_modules(strom.client.__path__, "strom.client.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert doctest.testmod(module).failed == 0


def test_the_library_does_not_know_the_gateway() -> None:
    program = (
        "import sys, strom.client.model; "
        "print(*[name for name in sys.modules if name.startswith(('strom.gateway', 'strom.server', 'strom.policies',"
        " 'strom.stores', 'strom.config'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
