"""What a protocol's dialect gives to the checks, and what a question is before it has a protocol."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from strom.conformance.framing import Framing
from strom.conformance.reading import Object, Reading
from strom.upstreams.settings import ProtocolName

ToolUse = Literal["none", "offered", "required", "named"]
Mistake = Literal["fields", "types", "model"]

STORY = "Tell me a long story about a river."
SHORT = "Say ok."
WEATHER = "What is the weather in Paris? Use the tool."
ECHO = (
    "Repeat exactly this text and nothing else:\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
)
"""Models too small to decide on a call can still copy one, where a Hermes-like template reads it as a call."""

TOOL_NAME = "get_weather"
TOOL_TEXT = "Tells the weather in a city."
TOOL_SCHEMA: Object = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL_RESULT = "18 degrees, sunny"
NO_SUCH_MODEL = "strom-check-no-such-model"


class Ask(msgspec.Struct, frozen=True):
    """One question. `call`: id and name and arguments of a call whose result is given back. `usage`: ask for it (Chat)."""

    prompt: str = STORY
    max_tokens: int = 48
    tools: ToolUse = "none"
    stop: str | None = None
    usage: bool = False
    call: tuple[str, str, str] | None = None


class Dialect(Protocol):
    """One protocol. Bodies are plain JSON objects; whether they ask for a stream is `stream`."""

    name: ProtocolName
    path: str
    models_path: str
    media_type: str
    tool_uses: tuple[ToolUse, ...]
    """Ways to get a call, best first."""
    stops: bool
    """Whether requests may name stop sequences."""

    def body(self, model: str, ask: Ask, *, stream: bool) -> Object: ...

    def judge_stream(self, framing: Framing, ask: Ask) -> Reading: ...

    def judge_reply(self, body: Object) -> Reading: ...

    def mistaken(self, model: str, mistake: Mistake) -> Object:
        """A streamed request with that mistake."""
        ...

    def error_flaw(self, body: Object) -> str | None:
        """What is wrong with the body of a refusal."""
        ...

    def model_names(self, body: Object) -> list[str] | None:
        """Out of a list of models; None when it is none."""
        ...
