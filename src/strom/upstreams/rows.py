"""One row of data for every kind of upstream: protocol, address, auth, quirks. Code never asks for a kind by name.

A quirk stands here only when a recording or a document shows it; the comment says which. An operator's
`[providers.quirks]` goes on top. A kind's `base_url` is None where the operator must give it, and a local server's own
address where it has a usual port (`ports`, the first is its default).

Source of the base URLs and variable names: each provider's API reference, as of late 2026; local ports: each server's
documented default (mlx_lm.server 8080, moved to 8081 by users of this gateway, whose own default is 8080).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.protocols.codec import Quirks
from strom.upstreams.settings import AuthStyle, ProtocolName

Counting = Literal["anthropic", "llama-cpp", "vllm"]


class UpstreamRow(msgspec.Struct, frozen=True):
    """What is known of a kind of upstream.

    `auth` None: the protocol's own way, bearer unless it is Anthropic's x-api-key. `key_demanded`: without a key it answers
    nothing. `versioned`: its endpoints stand below /v1 (or below the version in `base_url`). `counting`: the way it counts
    the tokens of a prompt exactly, or None.
    """

    protocol: ProtocolName = "openai-chat"
    base_url: str | None = None
    auth: AuthStyle | None = None
    key_names: tuple[str, ...] = ()
    """Environment variables that usually hold its key, best first."""
    key_demanded: bool = False
    ports: tuple[int, ...] = ()
    versioned: bool = True
    quirks: Quirks = Quirks()
    counting: Counting | None = None


_OPENAI = Quirks(
    # Chat reference: max_tokens is deprecated and refused by reasoning models; developer replaces system for them.
    # Source: protocol-facts.md section 1.1.
    developer_role=True,
    max_completion_tokens=True,
    # No reasoning text in the official schema of a message. Source: protocol-facts.md section 1.2.
    reasoning_field="",
    # Strict schemas close every object and require every member. Source: platform.openai.com, "Structured outputs".
    strict_schemas=True,
)

UPSTREAMS: dict[str, UpstreamRow] = {
    # --- local servers ---------------------------------------------------------------------------
    "mlx-lm": UpstreamRow(
        ports=(8081, 8080),
        base_url="http://127.0.0.1:8081",
        # No tool_choice, no response_format (recording mlx_lm/json_schema: ignored), text parts only: any other part is
        # answered 404. Source: protocol-facts.md section 7, mlx_lm.server.
        quirks=Quirks(tool_choice=False, response_format=False, images=False),
    ),
    "omlx": UpstreamRow(ports=(8000,), base_url="http://127.0.0.1:8000", key_names=("OMLX_API_KEY",)),
    "ollama": UpstreamRow(
        protocol="ollama",
        ports=(11434,),
        base_url="http://127.0.0.1:11434",
        # No tool_choice in /api/chat and /v1; its /v1 reads and writes `reasoning`. Source: protocol-facts.md sections 4, 7.
        # No image URLs in /v1 either.
        # The template leaves a last message of the assistant open (recording ollama_prefill is not there: ollama's
        # template.go renders no end for it).
        quirks=Quirks(tool_choice=False, reasoning_field="reasoning", media_urls=False, prefill=True),
    ),
    # Recordings xllamacpp/anthropic_count (count_tokens), xllamacpp/tokenize; developer_role is answered 200.
    # prefill: tools/server/README.md, "--no-prefill-assistant" (on by default).
    "llama-cpp": UpstreamRow(
        ports=(8080,), base_url="http://127.0.0.1:8080", quirks=Quirks(prefill=True), counting="llama-cpp"
    ),
    "lm-studio": UpstreamRow(ports=(1234,), base_url="http://127.0.0.1:1234"),
    "vllm": UpstreamRow(
        ports=(8000,),
        base_url="http://127.0.0.1:8000",
        # `reasoning` since 0.11. Source: protocol-facts.md section 7, vLLM.
        quirks=Quirks(reasoning_field="reasoning"),
        counting="vllm",
    ),
    "transformers": UpstreamRow(
        ports=(8000,),
        base_url="http://127.0.0.1:8000",
        # No [DONE] (recording transformers/plain); response_format ignored (recording transformers_tiny/json_schema).
        # A whole reply is made to its end when the client has left, and everybody after it waits (seen with 5.24: 58 s for
        # 1,500 tokens nobody reads); a stream stops at once. So only streams are asked for.
        quirks=Quirks(done_required=False, response_format=False, always_stream=True),
    ),
    # --- hosts -----------------------------------------------------------------------------------
    "openai": UpstreamRow(
        base_url="https://api.openai.com/v1", key_names=("OPENAI_API_KEY",), key_demanded=True, quirks=_OPENAI
    ),
    # https://RESOURCE.openai.azure.com/openai/v1: the same API with the key in `api-key`.
    "azure-openai": UpstreamRow(auth="api-key", key_names=("AZURE_OPENAI_API_KEY",), key_demanded=True, quirks=_OPENAI),
    "anthropic": UpstreamRow(
        protocol="anthropic",
        base_url="https://api.anthropic.com",
        key_names=("ANTHROPIC_API_KEY",),
        key_demanded=True,
        # Structured outputs take a subset of JSON Schema. Source: platform.claude.com, "Structured outputs".
        quirks=Quirks(cache_control=True, strict_schemas=True),
        counting="anthropic",
    ),
    "gemini": UpstreamRow(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_demanded=True,
    ),
    "openrouter": UpstreamRow(
        base_url="https://openrouter.ai/api/v1",
        key_names=("OPENROUTER_API_KEY",),
        key_demanded=True,
        # `reasoning`: protocol-facts.md section 1.2. cache_control: openrouter.ai/docs, "Prompt caching".
        quirks=Quirks(reasoning_field="reasoning", cache_control=True),
    ),
    "mistral": UpstreamRow(
        base_url="https://api.mistral.ai/v1",
        key_names=("MISTRAL_API_KEY",),
        key_demanded=True,
        # reasoning_content in the history is a 422 extra_forbidden. Source: BerriAI/litellm issue 30835.
        quirks=Quirks(reasoning_field=""),
    ),
    "groq": UpstreamRow(
        base_url="https://api.groq.com/openai/v1",
        key_names=("GROQ_API_KEY",),
        key_demanded=True,
        # "property 'reasoning_content' is unsupported", a 400; `reasoning` only with some models. Source: janhq/jan issue
        # 8136, vercel/ai pull request 8057.
        quirks=Quirks(reasoning_field=""),
    ),
    "deepseek": UpstreamRow(base_url="https://api.deepseek.com/v1", key_names=("DEEPSEEK_API_KEY",), key_demanded=True),
    "together": UpstreamRow(base_url="https://api.together.xyz/v1", key_names=("TOGETHER_API_KEY",), key_demanded=True),
    "fireworks": UpstreamRow(
        base_url="https://api.fireworks.ai/inference/v1", key_names=("FIREWORKS_API_KEY",), key_demanded=True
    ),
    "xai": UpstreamRow(base_url="https://api.x.ai/v1", key_names=("XAI_API_KEY",), key_demanded=True),
    # POST /chat/completions, without a version in the path. Source: docs.spring.io, "Perplexity Chat".
    "perplexity": UpstreamRow(
        base_url="https://api.perplexity.ai", key_names=("PERPLEXITY_API_KEY",), key_demanded=True, versioned=False
    ),
    "noris": UpstreamRow(key_names=("NORIS_API_KEY",), key_demanded=True),
    "generic": UpstreamRow(),
}


def auth_style(row: UpstreamRow, protocol: ProtocolName) -> AuthStyle:
    """How a key is sent to an upstream of this kind that speaks `protocol`."""
    return row.auth or ("x-api-key" if protocol == "anthropic" else "bearer")
