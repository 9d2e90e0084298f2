"""OpenAI Responses, in front and behind. Everything of this protocol's stands in this folder; `CODEC` is its way out."""

from strom.protocols.openai_responses.codec import CODEC

__all__ = ["CODEC"]
