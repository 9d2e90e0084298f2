"""Anthropic Messages, in front and behind. Everything of this protocol's stands in this folder; `CODEC` is its way out."""

from strom.protocols.anthropic_messages.codec import CODEC

__all__ = ["CODEC"]
