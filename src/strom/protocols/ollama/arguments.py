"""A tool call's arguments between JSON text and Ollama's object.

Ollama knows whole objects only, on one line. What is no JSON object is kept as text in a member `_raw`, so that nothing is
lost and nothing crashes. Source: protocol-facts.md sections 4 and 6.5.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.json_scan import JsonScan

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_TEXT = msgspec.json.Decoder(str)
_encode = msgspec.json.encode


def arguments_object(text: str, *, custom: bool = False) -> bytes:
    """The object, without line ends. `custom`: raw text of a free-text tool, which becomes the member `input`."""
    if custom:
        return _encode({"input": _clean(text)})
    if not text or text.isspace():
        return b"{}"
    try:
        data = text.encode()
        _OBJECT.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _encode({"_raw": _clean(text)})
    if "\n" in text or "\r" in text:  # only between tokens: inside strings JSON forbids them
        return msgspec.json.format(data, indent=-1)
    return data


def arguments_text(raw: Raw) -> str:
    """Arguments as they came, as JSON text: of a string its content without a Markdown fence; nothing means {}.

    Raises DecodeError for a broken string, UnicodeDecodeError for what is no UTF-8.
    """
    data = bytes(raw)
    if not data or data == b"null":
        return "{}"
    if data[0] != 34:
        return data.decode()
    scan = JsonScan()
    scan.feed(_TEXT.decode(data))
    return scan.text or "{}"


def is_object(raw: Raw) -> bool:
    return bytes(raw).startswith(b"{")


def problem(text: str) -> str:
    """Why these arguments are no JSON object, "" when they are one."""
    scan = JsonScan()
    scan.feed(text)
    return scan.problem()


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
