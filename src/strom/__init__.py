"""Strom moves LLM tokens from any backend to any client, and proves whether the answer is complete."""

from strom._version import __version__

__all__ = ["__version__"]
