"""Framing: bytes to frames and back. Knows no LLM."""
