"""A whole reply: a stream that was folded. There is no reply without proof that the answer is complete."""

from __future__ import annotations

from typing import Any

import msgspec

from strom.client.evidence import CompletionMetadata, StreamMetrics, ToolCall
from strom.core import messages as core
from strom.core.record import Cost
from strom.core.usage import Usage


class Reply(msgspec.Struct, frozen=True):
    """`text` is the final answer (of the last turn); `messages` all that the run added: calls, results, answer.

    `value`: the object of `into=`, or the result of an exit tool. `tool_calls`: calls that were left to the caller.
    `earlier_text`: what an earlier, incomplete answer had said, when this one continues it.
    """

    text: str
    metadata: CompletionMetadata
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    value: Any = None
    messages: tuple[core.Message, ...] = ()
    earlier_text: str = ""

    @property
    def full_text(self) -> str:
        return self.earlier_text + self.text

    @property
    def finish_reason(self) -> str | None:
        return self.metadata.finish_reason

    @property
    def usage(self) -> Usage | None:
        return self.metadata.usage

    @property
    def model(self) -> str | None:
        return self.metadata.provider_model

    @property
    def timing(self) -> StreamMetrics:
        return self.metadata.timing

    @property
    def cost(self) -> Cost | None:
        return self.metadata.cost

    def __str__(self) -> str:
        return self.text
