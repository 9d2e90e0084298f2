"""Bytes over a network: a native HTTP/1.1 server and upstream client, and their in-memory twins. Knows no LLM."""

from strom.transport.client import NativeClient
from strom.transport.listener import Listener

__all__ = ["Listener", "NativeClient"]
