"""The sync model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self, Unpack

from strom.client.async_model import AsyncModel
from strom.client.mapping import MapResult, Progress
from strom.client.messages import Messages
from strom.client.model_core import ModelCore
from strom.client.network import close_plain, wait_for
from strom.client.options import CallOptions
from strom.client.reply import Reply
from strom.client.services import Embeddings, TokenCount
from strom.client.session import Session, SessionOptions
from strom.client.stream import Stream


class Model(ModelCore):
    """A model at a provider, for programs without an event loop (and for threads beside one).

    `Model("ollama/qwen3:8b")` is a row of the provider table; `Model("qwen3-8b", base_url="http://127.0.0.1:8080")` any
    compatible server, a Strom gateway included. Options: see `ModelOptions`.

    >>> Model("ollama/qwen3:8b").provider
    'ollama'
    """

    def stream(self, messages: Messages, **options: Unpack[CallOptions]) -> Stream:
        """A stream of events; nothing is sent before the first one is asked for. Options: see `CallOptions`.

        Raises Unsupported, BadRequest, AuthError for what cannot be asked for, before anything is sent.
        """
        run, tools = self._prepare(messages, options, whole=False)
        return Stream(run, tools, self._clock, self._over(run))

    def complete(self, messages: Messages, **options: Unpack[CallOptions]) -> Reply:
        """The whole reply: a folded stream. Raises StreamFailed (which is also RateLimited, AuthError …) otherwise."""
        run, tools = self._prepare(messages, options, whole=True)
        with Stream(run, tools, self._clock, self._over(run)) as stream:
            return stream.reply()

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """A conversation that remembers. See `Session`."""
        return Session(self, **options)

    def map(
        self,
        prompts: Iterable[Messages],
        *,
        concurrency: int = 4,
        progress: Progress | bool = False,
        **options: Unpack[CallOptions],
    ) -> list[MapResult]:
        """A reply or an error for each prompt, in their order; `concurrency` at a time, 0: all at once.

        `progress`: True for a bar on stderr, or a function of (done, total).
        """
        return wait_for(self._twin().map(prompts, concurrency=concurrency, progress=progress, **options))

    def embed(self, texts: Sequence[str], *, max_characters: int | None = None) -> Embeddings:
        """One vector per text. Texts over `max_characters` are cut into pieces whose vectors are averaged."""
        return wait_for(self._twin().embed(texts, max_characters=max_characters))

    def models(self) -> list[str]:
        """What this provider serves."""
        return wait_for(self._twin().models())

    def count_tokens(self, messages: Messages, **options: Unpack[CallOptions]) -> TokenCount:
        """Of a prompt: the provider's own number where it counts, else an estimate that says so."""
        return wait_for(self._twin().count_tokens(messages, **options))

    def close(self) -> None:
        """Closes the idle connections of sync calls, of all models; the next call opens new ones. Never needed."""
        close_plain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _twin(self) -> AsyncModel:
        return self._same(AsyncModel)
