"""The async model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self, Unpack

from strom.client import services
from strom.client.async_stream import AsyncStream
from strom.client.fetching import fetch
from strom.client.mapping import MapResult, Progress, map_all
from strom.client.messages import Messages
from strom.client.model_core import ModelCore
from strom.client.network import close_idle
from strom.client.options import CallOptions
from strom.client.reply import Reply
from strom.client.requests import Wish, build
from strom.client.services import Embeddings, TokenCount
from strom.client.session import AsyncSession, SessionOptions
from strom.client.tools import as_tool
from strom.core.errors import ProviderError, Unsupported
from strom.core.messages import Message, TextPart
from strom.protocols.table import CODECS


class AsyncModel(ModelCore):
    """A model at a provider, for programs with an event loop. The same surface as `Model`, awaited.

    >>> AsyncModel("anthropic/claude-sonnet-4-5").model
    'claude-sonnet-4-5'
    """

    def stream(self, messages: Messages, **options: Unpack[CallOptions]) -> AsyncStream:
        """A stream of events; nothing is sent before the first one is asked for. Options: see `CallOptions`.

        Raises Unsupported, BadRequest, AuthError for what cannot be asked for, before anything is sent.
        """
        run, tools = self._prepare(messages, options, whole=False)
        return AsyncStream(run, tools, self._clock, self._over(run))

    async def complete(self, messages: Messages, **options: Unpack[CallOptions]) -> Reply:
        """The whole reply: a folded stream. Raises StreamFailed (which is also RateLimited, AuthError …) otherwise."""
        run, tools = self._prepare(messages, options, whole=True)
        async with AsyncStream(run, tools, self._clock, self._over(run)) as stream:
            return await stream.reply()

    def session(self, **options: Unpack[SessionOptions]) -> AsyncSession:
        """A conversation that remembers. See `Session`."""
        return AsyncSession(self, **options)

    async def map(
        self,
        prompts: Iterable[Messages],
        *,
        concurrency: int = 4,
        progress: Progress | bool = False,
        **options: Unpack[CallOptions],
    ) -> list[MapResult]:
        """A reply or an error for each prompt, in their order; `concurrency` at a time, 0: all at once."""

        async def one(prompt: Messages) -> Reply:
            return await self.complete(prompt, **options)

        return await map_all(list(prompts), one, concurrency=concurrency, progress=progress)

    async def embed(self, texts: Sequence[str], *, max_characters: int | None = None) -> Embeddings:
        """One vector per text. Texts over `max_characters` are cut into pieces whose vectors are averaged."""
        if isinstance(texts, str):
            texts = [texts]
        pieces = [services.split_text(text, max_characters) if max_characters else [text] for text in texts]
        flat = [piece for group in pieces for piece in group]
        question = services.ask_embeddings(flat, self._provider)
        body = await fetch(question, self._provider, self.codec, self._transport)
        found = services.read_embeddings(body, self._provider, len(flat))
        vectors, at = [], 0
        for group in pieces:
            vectors.append(services.average(found.vectors[at : at + len(group)], [len(piece) for piece in group]))
            at += len(group)
        return Embeddings(tuple(vectors), found.model, found.usage)

    async def models(self) -> list[str]:
        """What this provider serves."""
        question = services.ask_models(self._provider)
        return services.read_models(await fetch(question, self._provider, self.codec, self._transport))

    async def count_tokens(self, messages: Messages, **options: Unpack[CallOptions]) -> TokenCount:
        """Of a prompt: the provider's own number where it counts, else an estimate that says so."""
        canonical = self.canonical(messages)
        if system := options.get("system"):
            canonical = (Message("system", (TextPart(system),)), *canonical)
        tools = tuple(as_tool(given) for given in options.get("tools", ()))
        try:
            codec = CODECS["anthropic"] if services.counts_messages(self._provider) else self.codec
            candidate = build(Wish(canonical, self.config, tools), self._provider, codec)
            question = services.ask_count(candidate.request.body, self._provider)
            if question is not None:
                body = await fetch(question, self._provider, self.codec, self._transport)
                if (count := services.read_count(body)) is not None:
                    return count
        except (ProviderError, Unsupported):
            pass  # it cannot count: an estimate that says so is better than none
        return services.estimate_messages(canonical)

    async def aclose(self) -> None:
        """Closes the idle connections of the running loop, of all models; the next call opens new ones."""
        close_idle(asyncio.get_running_loop())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
