"""Ollama's own protocol, in front and behind. Everything of it stands in this folder; these names are its way out.

`CODEC` speaks /api/chat, `GENERATE_CODEC` /api/generate (in front, and on a relay). `endpoints`: bodies of the small endpoints;
`embed`: embeddings; `load`: requests that ask for no answer.
"""

from strom.protocols.ollama.codec import CODEC, GENERATE_CODEC

__all__ = ["CODEC", "GENERATE_CODEC"]
