"""A conversation that remembers: the sync and the async shell of `History`.

A turn is remembered when the reader has been given its StreamCompleted. After a close, a cancellation or a failure the memory
is as it was before, so the next prompt finds a conversation that alternates as it should.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from strom.client.evidence import StreamMetrics
from strom.client.history import History
from strom.client.messages import Messages
from strom.client.options import CallOptions, refuse_unknown
from strom.client.reply import Reply
from strom.client.services import estimate_message
from strom.core.errors import BadRequest
from strom.core.messages import Message

if TYPE_CHECKING:
    from strom.client.async_model import AsyncModel
    from strom.client.async_stream import AsyncStream
    from strom.client.model import Model
    from strom.client.model_core import ModelCore
    from strom.client.stream import Stream


class SessionOptions(TypedDict, total=False):
    system: str
    """Never evicted."""
    max_context: int | None
    """Tokens of one request, counted here; a local budget, not the model's own (`num_ctx`). Default 32768."""
    count_tokens: Callable[[Message], int]
    """In place of the estimate from lengths."""
    messages: Messages
    """A conversation to go on from."""
    options: CallOptions
    """Defaults of every call: tools, config …"""


class _SessionBase:
    def __init__(self, model: ModelCore, options: SessionOptions) -> None:
        refuse_unknown(options, SessionOptions, "a session")
        refuse_unknown(options.get("options", {}), CallOptions, "a session's options")
        count = options.get("count_tokens", estimate_message)
        self.history = History(options.get("system", ""), options.get("max_context", 32_768), count)
        self._model = model
        self._options: CallOptions = options.get("options", {})
        if "messages" in options:
            self.history.extend(model.canonical(options["messages"]))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation so far."""
        return self.history.messages

    @property
    def last_stream_metrics(self) -> StreamMetrics:
        """Timing of this session's latest operation, also after a failure or a close."""
        return self._latest.last_stream_metrics if self._latest is not None else StreamMetrics()

    _latest: Stream | AsyncStream | None = None

    def to_json(self) -> bytes:
        return self.history.to_json()

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_json())

    def _restore(self, data: bytes | str) -> Self:
        self.history.load_json(data)
        return self

    def _ask(self, prompt: Messages, options: CallOptions) -> tuple[tuple[Message, ...], CallOptions, Any]:
        """What is sent, with which options, and what is to be done with a complete answer."""
        said = self._model.canonical(prompt)
        window = self.history.window(said)
        return window, {**self._options, **options}, _Remember(self.history, said)


class _Remember:
    """Adds the turn to the history."""

    def __init__(self, history: History, prompt: Sequence[Message]) -> None:
        self._history = history
        self._prompt = prompt

    def __call__(self, reply: Reply) -> None:
        self._history.add(self._prompt, reply)


class Session(_SessionBase):
    """A conversation.

    >>> from strom.client.model import Model
    >>> session = Model("ollama/qwen3:8b").session(system="You are brief.", max_context=8000)
    >>> [message.role for message in session.messages]
    ['system']
    """

    _model: Model

    def __init__(self, model: Model, **options: Unpack[SessionOptions]) -> None:
        super().__init__(model, options)

    def stream(self, prompt: Messages, **options: Unpack[CallOptions]) -> Stream:
        """The answer as a stream. Raises ContextOverflow when the prompt does not fit `max_context`."""
        window, merged, remember = self._ask(prompt, options)
        self._latest = stream = self._model.stream(window, **merged)
        stream.on_delivered(remember)
        return stream

    def send(self, prompt: Messages, **options: Unpack[CallOptions]) -> Reply:
        """The whole answer."""
        with self.stream(prompt, **options) as stream:
            return stream.reply()

    @classmethod
    def load(cls, model: Model, source: str | Path | bytes) -> Session:
        """A saved session: a path, or the bytes of `to_json`. Raises BadRequest."""
        return cls(model)._restore(_saved(source))


class AsyncSession(_SessionBase):
    """A conversation; `send` is awaited, `stream` gives an AsyncStream."""

    _model: AsyncModel

    def __init__(self, model: AsyncModel, **options: Unpack[SessionOptions]) -> None:
        super().__init__(model, options)

    def stream(self, prompt: Messages, **options: Unpack[CallOptions]) -> AsyncStream:
        window, merged, remember = self._ask(prompt, options)
        self._latest = stream = self._model.stream(window, **merged)
        stream.on_delivered(remember)
        return stream

    async def send(self, prompt: Messages, **options: Unpack[CallOptions]) -> Reply:
        async with self.stream(prompt, **options) as stream:
            return await stream.reply()

    @classmethod
    def load(cls, model: AsyncModel, source: str | Path | bytes) -> AsyncSession:
        return cls(model)._restore(_saved(source))


def _saved(source: str | Path | bytes) -> bytes:
    """Raises BadRequest."""
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise BadRequest(f"The session {source} cannot be read: {error.strerror}") from error
