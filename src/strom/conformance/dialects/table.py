"""The protocols that can be checked."""

from __future__ import annotations

from strom.conformance.dialects.anthropic import AnthropicDialect
from strom.conformance.dialects.dialect import Dialect
from strom.conformance.dialects.ollama import OllamaDialect
from strom.conformance.dialects.openai_chat import ChatDialect
from strom.conformance.dialects.openai_responses import ResponsesDialect

DIALECTS: tuple[Dialect, ...] = (ChatDialect(), ResponsesDialect(), AnthropicDialect(), OllamaDialect())
