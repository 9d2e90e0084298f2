"""Strom moves LLM tokens from any backend to any client, and proves whether the answer is complete.

The public names of the library. They are loaded on first use, so that `import strom` costs next to nothing.

    import strom

    for text in strom.Model("ollama/qwen3:8b").stream("Tell me a story").text():
        print(text, end="", flush=True)
"""

from __future__ import annotations

from strom._version import __version__

TYPE_CHECKING = False  # type checkers take it for true; `typing` itself would cost more than all the rest

if TYPE_CHECKING:
    from strom.client.async_model import AsyncModel as AsyncModel
    from strom.client.async_stream import AsyncStream as AsyncStream
    from strom.client.config import CompletionConfig as CompletionConfig
    from strom.client.config import ResponseFormat as ResponseFormat
    from strom.client.events import StreamChunk as StreamChunk
    from strom.client.events import StreamCompleted as StreamCompleted
    from strom.client.events import StreamContent as StreamContent
    from strom.client.events import StreamDone as StreamDone
    from strom.client.events import StreamError as StreamError
    from strom.client.events import StreamErrorReason as StreamErrorReason
    from strom.client.events import StreamEvent as StreamEvent
    from strom.client.events import StreamPartial as StreamPartial
    from strom.client.events import StreamThinking as StreamThinking
    from strom.client.events import StreamToolCall as StreamToolCall
    from strom.client.events import StreamToolResult as StreamToolResult
    from strom.client.evidence import CompletionMetadata as CompletionMetadata
    from strom.client.evidence import StreamMetrics as StreamMetrics
    from strom.client.evidence import ToolCall as ToolCall
    from strom.client.failures import StreamFailed as StreamFailed
    from strom.client.failures import StreamMisuse as StreamMisuse
    from strom.client.mapping import MapResult as MapResult
    from strom.client.media import Audio as Audio
    from strom.client.media import Document as Document
    from strom.client.media import Image as Image
    from strom.client.media import Text as Text
    from strom.client.media import Video as Video
    from strom.client.messages import Message as Message
    from strom.client.messages import load_prompt as load_prompt
    from strom.client.model import Model as Model
    from strom.client.reply import Reply as Reply
    from strom.client.retry import Retry as Retry
    from strom.client.retry import RetryEvent as RetryEvent
    from strom.client.services import Embeddings as Embeddings
    from strom.client.services import TokenCount as TokenCount
    from strom.client.session import AsyncSession as AsyncSession
    from strom.client.session import Session as Session
    from strom.client.signals import AdmissionRequest as AdmissionRequest
    from strom.client.stream import Stream as Stream
    from strom.client.tools import Tool as Tool
    from strom.client.tools import ToolContext as ToolContext
    from strom.client.tools import ToolOutput as ToolOutput
    from strom.client.tools import tool as tool
    from strom.client.tracer import TraceBatch as TraceBatch
    from strom.client.tracer import TraceCall as TraceCall
    from strom.client.tracer import Tracer as Tracer
    from strom.client.tracer import TraceResponse as TraceResponse
    from strom.client.tracer import TraceTool as TraceTool
    from strom.core.errors import AuthError as AuthError
    from strom.core.errors import BadRequest as BadRequest
    from strom.core.errors import Cancelled as Cancelled
    from strom.core.errors import ContentPolicy as ContentPolicy
    from strom.core.errors import ContextOverflow as ContextOverflow
    from strom.core.errors import ProviderError as ProviderError
    from strom.core.errors import RateLimited as RateLimited
    from strom.core.errors import StromError as StromError
    from strom.core.errors import TimedOut as TimedOut
    from strom.core.errors import ToolError as ToolError
    from strom.core.errors import Unsupported as Unsupported
    from strom.core.record import Cost as Cost
    from strom.core.usage import Usage as Usage
    from strom.upstreams.settings import Price as Price
    from strom.upstreams.timeouts import Timeouts as Timeouts

_MODULES: dict[str, tuple[str, ...]] = {
    "strom.client.async_model": ("AsyncModel",),
    "strom.client.async_stream": ("AsyncStream",),
    "strom.client.config": ("CompletionConfig", "ResponseFormat"),
    "strom.client.events": (
        "StreamChunk", "StreamCompleted", "StreamContent", "StreamDone", "StreamError", "StreamErrorReason", "StreamEvent",
        "StreamPartial", "StreamThinking", "StreamToolCall", "StreamToolResult",
    ),
    "strom.client.evidence": ("CompletionMetadata", "StreamMetrics", "ToolCall"),
    "strom.client.failures": ("StreamFailed", "StreamMisuse"),
    "strom.client.mapping": ("MapResult",),
    "strom.client.media": ("Audio", "Document", "Image", "Text", "Video"),
    "strom.client.messages": ("Message", "load_prompt"),
    "strom.client.model": ("Model",),
    "strom.client.reply": ("Reply",),
    "strom.client.retry": ("Retry", "RetryEvent"),
    "strom.client.services": ("Embeddings", "TokenCount"),
    "strom.client.session": ("AsyncSession", "Session"),
    "strom.client.signals": ("AdmissionRequest",),
    "strom.client.stream": ("Stream",),
    "strom.client.tools": ("Tool", "ToolContext", "ToolOutput", "tool"),
    "strom.client.tracer": ("TraceBatch", "TraceCall", "TraceResponse", "TraceTool", "Tracer"),
    "strom.core.errors": (
        "AuthError", "BadRequest", "Cancelled", "ContentPolicy", "ContextOverflow", "ProviderError", "RateLimited",
        "StromError", "TimedOut", "ToolError", "Unsupported",
    ),
    "strom.core.record": ("Cost",),
    "strom.core.usage": ("Usage",),
    "strom.upstreams.settings": ("Price",),
    "strom.upstreams.timeouts": ("Timeouts",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604 - the table is the list


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'strom' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
