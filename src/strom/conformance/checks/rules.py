"""The rules behind the checks, per protocol, each with where it is written down or who breaks without it."""

from __future__ import annotations

from strom.conformance.report import Rule
from strom.upstreams.settings import ProtocolName

Rules = dict[ProtocolName, Rule]

_CHAT = "OpenAI API reference, Chat: streaming"
_RESPONSES = "OpenAI API reference, Responses: streaming events"
_ANTHROPIC = "docs.claude.com, Streaming Messages"
_OLLAMA = "github.com/ollama/ollama, docs/api.md"
_SSE = "WHATWG HTML, 9.2 Server-sent events"


def _everywhere(text: str, source: str) -> Rules:
    rule = Rule(text, source)
    return {"openai-chat": rule, "openai-responses": rule, "anthropic": rule, "ollama": rule}


def _each(text: str) -> Rules:
    """One rule, written down by each protocol's own reference."""
    return {
        "openai-chat": Rule(text, _CHAT),
        "openai-responses": Rule(text, _RESPONSES),
        "anthropic": Rule(text, _ANTHROPIC),
        "ollama": Rule(text, _OLLAMA),
    }


STATUS = _each("A streamed request is answered with 200.")

_EVENT_STREAM = "A stream is text/event-stream, and says that it must not be cached."
HEADERS: Rules = {
    "openai-chat": Rule(_EVENT_STREAM, _SSE),
    "openai-responses": Rule(_EVENT_STREAM, _SSE),
    "anthropic": Rule(_EVENT_STREAM, _SSE),
    "ollama": Rule("A stream is application/x-ndjson.", _OLLAMA),
}

COMPRESSION = _everywhere(
    "A stream is not compressed: a compressor gathers tokens before it lets them go.",
    "RFC 9110 8.4; nginx documentation, ngx_http_gzip_module",
)

_NAMED = "Each frame is one event of JSON, ended by a blank line, its event name equal to its type."
FRAMING: Rules = {
    "openai-chat": Rule("Each frame is a data line with a JSON object, ended by a blank line.", f"{_CHAT}; {_SSE}"),
    "openai-responses": Rule(_NAMED, f"{_RESPONSES}; {_SSE}"),
    "anthropic": Rule(_NAMED, f"{_ANTHROPIC} (its SDKs ignore events without a name); {_SSE}"),
    "ollama": Rule("Each line is one JSON object, the last one too ends with a line end.", _OLLAMA),
}

SHAPE: Rules = {
    "openai-chat": Rule("Each chunk is a chat.completion.chunk with a list of choices.", _CHAT),
    "openai-responses": Rule("Items have id and type; what is done is the sum of its deltas.", _RESPONSES),
    "anthropic": Rule("message_start holds an empty message; blocks have a type.", _ANTHROPIC),
    "ollama": Rule("Each line has message and done; an error is text.", _OLLAMA),
}

ORDER: Rules = {
    "openai-responses": Rule("response.created, then items and parts, each opened, filled and closed.", _RESPONSES),
    "anthropic": Rule("message_start, then blocks one after the other with rising indices.", _ANTHROPIC),
}

ROLE: Rules = {
    "openai-chat": Rule("The first chunk has the role, once; strict clients refuse a second one.", _CHAT),
    "openai-responses": Rule("A message item has the role assistant.", _RESPONSES),
    "anthropic": Rule("message_start has the role assistant.", _ANTHROPIC),
    "ollama": Rule("Every message has the role assistant.", _OLLAMA),
}

CONSTANTS: Rules = {
    "openai-chat": Rule("All chunks have the same id, created and model.", "OpenAI API reference, chunk object"),
    "openai-responses": Rule("sequence_number counts up by one; ids stay the same.", _RESPONSES),
    "anthropic": Rule("message_start has id and model.", _ANTHROPIC),
    "ollama": Rule("Every line has model and created_at.", _OLLAMA),
}

FINISH: Rules = {
    "openai-chat": Rule("Every choice ends with one finish_reason, after its last delta.", _CHAT),
    "openai-responses": Rule("The terminal event's status is its own: completed, incomplete or failed.", _RESPONSES),
    "anthropic": Rule("One message_delta says the stop_reason.", _ANTHROPIC),
    "ollama": Rule("The line with done: true has done_reason.", _OLLAMA),
}

TERMINATOR: Rules = {
    "openai-chat": Rule("`data: [DONE]` comes once and last: without it a cut looks like an end.", _CHAT),
    "openai-responses": Rule("One terminal event comes last; there is no [DONE].", _RESPONSES),
    "anthropic": Rule("message_stop comes last.", _ANTHROPIC),
    "ollama": Rule("One line with done: true comes last.", _OLLAMA),
}

END = _everywhere(
    "The body ends by its own framing (chunks or length), so that a reader can tell an end from a cut.",
    "RFC 9112 section 8, Handling incomplete messages",
)

USAGE: Rules = {
    "openai-chat": Rule(
        "Without include_usage there is no chunk with empty choices (clients read choices[0]), and usage comes once.",
        "OpenAI API reference, stream_options",
    ),
    "openai-responses": Rule(
        "The terminal event has the whole usage.", f"{_RESPONSES}; Codex retries without it, opencode asks without end"
    ),
    "anthropic": Rule(
        "message_start has input_tokens and output_tokens, message_delta output_tokens.",
        f"{_ANTHROPIC}; anthropic-python raises AttributeError without them",
    ),
    "ollama": Rule("The last line has prompt_eval_count and eval_count.", _OLLAMA),
}

USAGE_ASKED: Rules = {
    "openai-chat": Rule(
        "With include_usage the last chunk has `choices: []` and the usage.", "OpenAI API reference, stream_options"
    )
}

FLOW = _everywhere(
    "Tokens leave as they are made.", "nginx documentation, X-Accel-Buffering: what buffers a stream makes it none"
)

GENERATE: Rules = {"ollama": Rule("/api/generate streams lines with `response`.", f"{_OLLAMA}, Generate a completion")}

WHOLE_STATUS = _each("A request without a stream is answered with one JSON object.")

WHOLE_SHAPE: Rules = {
    "openai-chat": Rule("A chat.completion with id, created, model, choices, finish_reason.", "OpenAI API reference"),
    "openai-responses": Rule("A response with id, created_at, model, output, status.", "OpenAI API reference"),
    "anthropic": Rule("A message with id, model, role, content, stop_reason.", "docs.claude.com, Messages"),
    "ollama": Rule("One object with model, created_at, message, done: true, done_reason.", _OLLAMA),
}

WHOLE_USAGE: Rules = {
    "openai-chat": Rule("usage has prompt, completion and total tokens, and they add up.", "OpenAI API reference"),
    "openai-responses": Rule("usage has input, output and total tokens.", "OpenAI API reference"),
    "anthropic": Rule("usage has input_tokens and output_tokens.", "docs.claude.com, Messages"),
    "ollama": Rule("prompt_eval_count and eval_count are there.", _OLLAMA),
}

AGREES = _each("The whole reply is what the stream adds up to: text, thinking, reason, usage.")

LENGTH: Rules = {
    "openai-chat": Rule("An answer cut by max_tokens ends with finish_reason length.", "OpenAI API reference"),
    "openai-responses": Rule(
        "An answer cut by max_output_tokens is incomplete, with that reason.", "OpenAI API reference"
    ),
    "anthropic": Rule("An answer cut by max_tokens has stop_reason max_tokens.", "docs.claude.com, Messages"),
    "ollama": Rule("An answer cut by num_predict has done_reason length.", _OLLAMA),
}

_STOP = "The text ends before the stop sequence, and nothing comes after it."
STOP: Rules = {
    "openai-chat": Rule(_STOP, "OpenAI API reference, stop"),
    "openai-responses": Rule(_STOP, "OpenAI API reference: Responses have no stop"),
    "anthropic": Rule(_STOP, "docs.claude.com, Messages, stop_sequences"),
    "ollama": Rule(_STOP, f"{_OLLAMA}, options"),
}

TOOLS = _each("A request that offers a tool is answered.")

TOOL_CHOICE: Rules = {
    "openai-chat": Rule('tool_choice "required" brings a call.', "OpenAI API reference, tool_choice"),
    "openai-responses": Rule('tool_choice "required" brings a call.', "OpenAI API reference, tool_choice"),
    "anthropic": Rule("tool_choice any brings a call.", "docs.claude.com, Messages, tool_choice"),
    "ollama": Rule("There is no tool_choice.", _OLLAMA),
}

TOOL_CALL: Rules = {
    "openai-chat": Rule(
        "A call has index, id, type and name in its first delta, arguments as JSON, and the reason tool_calls.",
        f"{_CHAT}; openai-python raises TypeError without the index",
    ),
    "openai-responses": Rule("A call is an item with call_id, name and arguments as JSON.", _RESPONSES),
    "anthropic": Rule("A call is a block with id, name, input as JSON, and the reason tool_use.", _ANTHROPIC),
    "ollama": Rule("A call comes whole, its arguments an object.", _OLLAMA),
}

TOOL_RESULT = _each("A call and its result, given back, are answered.")

THINKING = _everywhere(
    "Thinking stands apart from the text, and before it.",
    "docs.claude.com, Extended thinking; docs.vllm.ai, Reasoning outputs; Ollama docs/api.md, thinking",
)

_REFUSAL = "A bad request is refused with a status of 4xx"
ERRORS: Rules = {
    "openai-chat": Rule(f"{_REFUSAL} and `error` with message and type.", "OpenAI API reference, Error codes"),
    "openai-responses": Rule(f"{_REFUSAL} and `error` with message and type.", "OpenAI API reference, Error codes"),
    "anthropic": Rule(f"{_REFUSAL}, type error, and `error` with type and message.", "docs.claude.com, Errors"),
    "ollama": Rule(f"{_REFUSAL} and `error` as text.", f"{_OLLAMA}; api/client.go"),
}

_UNKNOWN = "A model that is not there is refused with 404, also when a stream was asked for."
UNKNOWN_MODEL: Rules = {
    "openai-chat": Rule(_UNKNOWN, "OpenAI API reference, Error codes"),
    "openai-responses": Rule(_UNKNOWN, "OpenAI API reference, Error codes"),
    "anthropic": Rule(_UNKNOWN, "docs.claude.com, Errors"),
    "ollama": Rule(_UNKNOWN, _OLLAMA),
}

MODELS: Rules = {
    "openai-chat": Rule("/v1/models lists models in `data`, each with an id.", "OpenAI API reference, List models"),
    "openai-responses": Rule("/v1/models lists models in `data`, each with an id.", "OpenAI API reference"),
    "anthropic": Rule("/v1/models lists models in `data`, each with an id.", "docs.claude.com, List Models"),
    "ollama": Rule("/api/tags lists models, each with a name.", f"{_OLLAMA}, List local models"),
}

COUNT: Rules = {
    "openai-responses": Rule("/v1/responses/input_tokens counts the prompt.", "OpenAI API reference"),
    "anthropic": Rule("/v1/messages/count_tokens counts the prompt.", "docs.claude.com, Count Message tokens"),
}

VERSION: Rules = {"ollama": Rule("/api/version says the version.", f"{_OLLAMA}, Version")}

SHOW: Rules = {
    "ollama": Rule("/api/show has details and model_info.", f"{_OLLAMA}, Show model information; ollama-python")
}

CANCEL = _everywhere(
    "Generation stops when the client leaves.",
    "RFC 9110 leaves it open; llama.cpp, vLLM, mlx_lm and Ollama all do it",
)
