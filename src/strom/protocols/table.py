"""Which wire protocols there are. A new one is a folder beside this file and a line in `CODECS`."""

from __future__ import annotations

from strom.protocols import anthropic_messages, ollama, openai_chat, openai_responses
from strom.protocols.codec import Codec

CODECS: dict[str, Codec] = {
    "openai-chat": openai_chat.CODEC,
    "openai-responses": openai_responses.CODEC,
    "anthropic": anthropic_messages.CODEC,
    "ollama": ollama.CODEC,
}
"""By the name that `protocol` has in the configuration."""
