"""Requests and replies in canonical form.

A conversation is a list of `Message`s in the order the model reads them; system messages stay where they stand. Results of
tools are `ToolResult` parts of a *user* message (Anthropic's shape); codecs of protocols that have a message per result
split and join. What only one protocol knows is kept as raw JSON text (`extras`, `OpaquePart`) and given back to that protocol
alone; what a target cannot carry is named by its encoder in the list of dropped things, or refused with `Unsupported`
where leaving it out would change the meaning.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.core.usage import Usage

Protocol = Literal["openai-chat", "openai-responses", "anthropic", "ollama"]
SERVED_HERE: dict[str, frozenset[str]] = {
    "openai-responses": frozenset(("store", "background", "previous_response_id")),
}
"""Extras that mean the same with any upstream behind, as the gateway stores, runs and continues responses itself."""


class Json(msgspec.Struct, frozen=True):
    """A JSON value as the text it came in, so that it goes out unchanged."""

    text: str


# --- parts of a message --------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True):
    text: str
    cache_control: Json | None = None
    citations: Json | None = None


class ImagePart(msgspec.Struct, frozen=True):
    """Exactly one of `data` (base64, without a data: prefix), `url` and `file_id` is set; `media_type` goes with data."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    detail: str = ""
    cache_control: Json | None = None


class DocumentPart(msgspec.Struct, frozen=True):
    """A PDF or text document. Exactly one of `data` (base64), `text`, `url`, `file_id` is set."""

    media_type: str = ""
    data: str = ""
    text: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    """File name (OpenAI) or title (Anthropic)."""
    context: str = ""
    citations: Json | None = None
    cache_control: Json | None = None


class AudioPart(msgspec.Struct, frozen=True):
    """`format` as OpenAI names it: wav, mp3."""

    data: str
    format: str


class ThinkingPart(msgspec.Struct, frozen=True):
    """Earlier reasoning. `signature` (or `encrypted`: redacted or encrypted reasoning) only goes back to `origin`."""

    text: str = ""
    signature: str = ""
    encrypted: str = ""
    origin: str = ""
    """The protocol that signed it; "" when unsigned."""
    item_id: str = ""


class RefusalPart(msgspec.Struct, frozen=True):
    text: str


class ToolCallPart(msgspec.Struct, frozen=True):
    """`arguments` is JSON text as it came ("" means {}), or raw text of a `custom` tool."""

    call_id: str
    name: str
    arguments: str
    custom: bool = False
    namespace: str = ""
    item_id: str = ""
    cache_control: Json | None = None


class ToolResultPart(msgspec.Struct, frozen=True):
    call_id: str
    content: tuple[TextPart | ImagePart | DocumentPart | OpaquePart, ...] = ()
    is_error: bool | None = None
    name: str = ""
    """Name of the tool, where the protocol tells it (Ollama `tool_name`)."""
    custom: bool = False
    cache_control: Json | None = None


class OpaquePart(msgspec.Struct, frozen=True):
    """A part only `protocol` knows (server tool use and its results, item references …): its JSON, and its `type`."""

    protocol: str
    kind: str
    json: Json

    @property
    def is_medium(self) -> bool:
        """Whether the model would have to see or hear it: then a target that cannot carry it refuses, and does not drop it."""
        return self.kind in _MEDIA_KINDS


_MEDIA_KINDS = frozenset(
    ("image", "image_url", "input_image", "image_file", "document", "file", "input_file", "container_upload",
     "audio", "audio_url", "input_audio", "video", "video_url", "input_video")
)  # fmt: skip
"""Types of opaque parts that hold media. Source: each protocol's request schema, protocol-facts.md sections 1.1, 2.1, 3.1;
docs.vllm.ai, "Multimodal Inputs" (audio_url, video_url); openrouter.ai/docs, "Video"."""


Part = (
    TextPart
    | ImagePart
    | DocumentPart
    | AudioPart
    | ThinkingPart
    | RefusalPart
    | ToolCallPart
    | ToolResultPart
    | OpaquePart
)
Role = Literal["system", "developer", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """All text of the message, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


# --- tools ---------------------------------------------------------------------------------------


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call. `parameters` is its JSON schema as text ("" when none was given).

    `custom`: takes free text, `format` is its grammar or format description. `namespace`: the group it was declared in.
    `opaque`: a tool only `protocol` can run (web_search …); `opaque.kind` names it and nothing else is set but `name`.
    """

    name: str
    description: str = ""
    parameters: str = ""
    strict: bool | None = None
    custom: bool = False
    format: Json | None = None
    namespace: str = ""
    cache_control: Json | None = None
    opaque: OpaquePart | None = None
    extras: tuple[tuple[str, Json], ...] = ()


class ToolName(msgspec.Struct, frozen=True):
    """What an upstream's tool name stands for at the client."""

    name: str
    namespace: str = ""
    custom: bool = False
    """A free-text tool that went out as a function with one string field `input`; its calls are unwrapped."""


class ToolChoice(msgspec.Struct, frozen=True):
    """`named` has `name`; `allowed` restricts to `allowed` with auto or, if `required`, at least one call."""

    mode: Literal["auto", "none", "required", "named", "allowed"]
    name: str = ""
    allowed: tuple[str, ...] = ()
    required: bool = False


# --- a request -----------------------------------------------------------------------------------


class ResponseFormat(msgspec.Struct, frozen=True):
    kind: Literal["json_object", "json_schema"]
    name: str = ""
    schema: str = ""
    """JSON text."""
    strict: bool | None = None
    description: str = ""


class Reasoning(msgspec.Struct, frozen=True):
    """`enabled` None: the caller did not say. `effort`: none, minimal, low, medium, high, xhigh, max, or "".

    `adaptive`: Anthropic's adaptive thinking. `summary`: Responses' wish for summaries. `display`: Anthropic's display mode.
    """

    enabled: bool | None = None
    effort: str = ""
    budget_tokens: int | None = None
    adaptive: bool = False
    summary: str = ""
    display: str = ""


class Sampling(msgspec.Struct, frozen=True):
    """None: not set, and then not sent upstream."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Json | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None


class Request(msgspec.Struct, frozen=True):
    """What a client asks for, in no protocol's words. `protocol` is the one it came in.

    `extras` are top-level fields without a canonical place (name, JSON text), for the same protocol only; an encoder to
    another protocol names those that matter as dropped. `stream`: as the client asked. `include_usage`,
    `continuous_usage`: Chat's stream options.
    """

    protocol: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    user: str = ""
    metadata: Json | None = None
    verbosity: str = ""
    keep_alive: Json | None = None
    """Ollama's keep_alive."""
    extras: tuple[tuple[str, Json], ...] = ()

    def lost_extras(self) -> list[str]:
        """Names of the extras that an upstream of another protocol does not get, but for what the gateway serves itself."""
        served = SERVED_HERE.get(self.protocol, frozenset())
        return [name for name, _ in self.extras if name not in served]


# --- a reply -------------------------------------------------------------------------------------


class Reply(msgspec.Struct, frozen=True):
    """A whole answer: a folded, *completed* stream (see fold.py). There is no Reply of an unproven stream."""

    response_id: str
    model: str
    created: int
    parts: tuple[Part, ...]
    finish_reason: str
    stop_sequence: str = ""
    finish_raw: str = ""
    finish_assumed: bool = False
    usage: Usage | None = None
    notes: tuple[str, ...] = ()
