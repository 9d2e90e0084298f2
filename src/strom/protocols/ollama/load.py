"""Requests that ask for no answer: load the model, or give it back.

/api/chat without messages and /api/generate without a prompt; `keep_alive` 0 means unload. They are answered at once, without
the backend, with one JSON object. Source: protocol-facts.md section 4; ollama server/routes.go, GenerateHandler, ChatHandler.
"""

from __future__ import annotations

import re

from strom.core.messages import Request
from strom.protocols.codec import ReplyContext
from strom.protocols.ollama.encoder import EMPTY, ending, envelope
from strom.protocols.ollama.form import Form

_ZERO = re.compile(r'"?-?0+(?:\.0*)?(?:ns|us|µs|ms|s|m|h)?"?')


def is_load(request: Request) -> bool:
    return not request.messages


def is_unload(request: Request) -> bool:
    return is_load(request) and request.keep_alive is not None and bool(_ZERO.fullmatch(request.keep_alive.text))


def load_reply(form: Form, request: Request, context: ReplyContext) -> bytes:
    """The whole answer, streamed or not."""
    reason = "unload" if is_unload(request) else "load"
    return envelope(context) + form.contents(EMPTY) + b"," + ending(reason, None) + b"}"
