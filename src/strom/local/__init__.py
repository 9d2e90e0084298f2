"""The embedded model: a small real model inside the gateway's own process, so that `strom serve` streams with no backend.

`weights.py` finds or fetches the file, `embedded.py` runs it. The gateway talks to it over loopback as to any other
llama.cpp server: nothing above this package knows a second way to reach a model. Needs the extra `strom[local]`.
"""

from strom.local.embedded import DESCRIPTION, EmbeddedModel, is_installed
from strom.local.errors import EmbeddedModelUnavailable
from strom.local.weights import SMOLLM2, cache_folder, ensure_weights, is_cached

__all__ = [
    "DESCRIPTION",
    "SMOLLM2",
    "EmbeddedModel",
    "EmbeddedModelUnavailable",
    "cache_folder",
    "ensure_weights",
    "is_cached",
    "is_installed",
]
