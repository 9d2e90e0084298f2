"""Names, buckets and provider names of OpenTelemetry's GenAI semantic conventions, edition 1.41.

The conventions are in development: this is the last edition before they moved to a repository of their own, and what
collectors and dashboards know. Names that begin with `strom.` are ours, for what the conventions have no word for.
Source: opentelemetry.io/docs/specs/semconv/gen-ai (gen-ai-spans, gen-ai-metrics), edition 1.41.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - tokens of models
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_STATUS: Final = "http.response.status_code"

CORRELATION_ID: Final = "strom.correlation_id"
STATUS: Final = "strom.status"
"""completed, tool_calls, the reason of a failure, or `left` when the reader closed the stream."""
FIRST_TOKEN_KIND: Final = "strom.first_token_kind"  # noqa: S105 - tokens of models
ATTEMPTS: Final = "strom.attempts"
TRACE_ID: Final = "strom.trace_id"
ENDPOINT: Final = "strom.endpoint_id"
REGION: Final = "strom.inference_region"
POLICY: Final = "strom.policy_id"
KEY_NAME: Final = "strom.key_name"
PROTOCOL_IN: Final = "strom.protocol_in"
PROTOCOL_OUT: Final = "strom.protocol_out"
FAULT: Final = "strom.fault"
OUTCOME: Final = "strom.outcome"
"""How an attempt ended: ok, failed, timeout, refused, unreachable or cancelled."""
COST: Final = "strom.cost.amount"
CURRENCY: Final = "strom.cost.currency"

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
OPERATION_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - tokens of models
SERVER_DURATION: Final = "gen_ai.server.request.duration"
SERVER_FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105 - tokens of models
SERVER_TOKEN_TIME: Final = "gen_ai.server.time_per_output_token"  # noqa: S105 - tokens of models

DURATION_BUCKETS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_CHUNK_BUCKETS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKEN_TIME_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKEN_BUCKETS: Final = tuple(float(4**power) for power in range(14))

_PROVIDERS: Final = {
    "azure-openai": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Where the conventions' name for a provider is not ours."""


def provider_name(ours: str) -> str:
    return _PROVIDERS.get(ours, ours)
