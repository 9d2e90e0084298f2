"""Media through every encoder: carried as they are, or refused by name; never left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Request,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.codec import Quirks, Target
from strom.protocols.table import CODECS

NAMES = sorted(CODECS)
IMAGE = ImagePart("image/png", data="QUJD")
PDF = DocumentPart("application/pdf", data="QUJD", name="a.pdf")
MEDIA: list[Part] = [
    IMAGE,
    ImagePart(url="https://example.org/a.png"),
    ImagePart(file_id="file-1"),
    PDF,
    DocumentPart(url="https://example.org/a.pdf"),
    DocumentPart(file_id="file-2"),
    AudioPart("QUJD", "wav"),
    OpaquePart("openai-chat", "video_url", Json('{"type":"video_url","video_url":{"url":"https://example.org/v"}}')),
    OpaquePart("anthropic", "container_upload", Json('{"type":"container_upload","file_id":"f"}')),
    OpaquePart("openai-responses", "input_video", Json('{"type":"input_video"}')),
]
SIGNS = ("QUJD", "example.org", "file-1", "file-2", "input_video", "container_upload")


def encode(name: str, *parts: Part, role: Role = "user", protocol: str = "", quirks: Quirks | None = None) -> str:
    """The body."""
    messages = (Message("user", (TextPart("see"),)), Message(role, parts), Message("user", (TextPart("so?"),)))
    request = Request(protocol or name, "m", messages)
    return CODECS[name].encode_request(request, Target("up", stream=False, quirks=quirks or Quirks())).body.decode()


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("part", MEDIA)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_refused_is_sent(name: str, part: Part, protocol: str) -> None:
    """From every protocol, in every place where a message may have it."""
    result = ToolResultPart("c", (part,)) if isinstance(part, ImagePart | DocumentPart | OpaquePart) else None
    for role, sent in (("user", part), ("system", part), ("assistant", part), ("user", result)):
        if sent is None:
            continue
        try:
            body = encode(name, sent, role=role, protocol=protocol)  # type: ignore[arg-type]  # a Role
        except Unsupported:
            continue
        assert any(sign in body for sign in SIGNS), (role, body)


@pytest.mark.parametrize("part", MEDIA)
@pytest.mark.parametrize("name", NAMES)
def test_a_backend_that_takes_text_alone_is_sent_no_media(name: str, part: Part) -> None:
    blind = Quirks(images=False)
    with pytest.raises(Unsupported):
        encode(name, part, protocol="openai-chat", quirks=blind)
    if isinstance(part, ImagePart | DocumentPart):
        with pytest.raises(Unsupported):
            encode(name, ToolResultPart("c", (part,)), protocol="openai-chat", quirks=blind)
    assert "words" in encode(name, DocumentPart("text/plain", text="words"), quirks=blind)


@pytest.mark.parametrize("name", NAMES)
def test_file_ids_stay_with_their_provider(name: str) -> None:
    for protocol in ("anthropic", "ollama"):
        if protocol != name:
            with pytest.raises(Unsupported):
                encode(name, DocumentPart(file_id="file-2"), protocol=protocol)


def test_chat_and_responses_share_file_ids() -> None:
    for name, other in (("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")):
        assert "file-2" in encode(name, DocumentPart(file_id="file-2"), protocol=other)


@pytest.mark.parametrize("name", NAMES)
def test_images_of_tool_results_are_carried(name: str) -> None:
    call = Message("assistant", (ToolCallPart("c", "look", "{}"),))
    result = Message("user", (ToolResultPart("c", (TextPart("taken"), IMAGE)),))
    request = Request("anthropic", "m", (Message("user", (TextPart("q"),)), call, result))
    body = CODECS[name].encode_request(request, Target("up", stream=False)).body.decode()
    assert "QUJD" in body


def chat(content: list[dict[str, Any]], role: str = "user") -> Request:
    body = {"model": "m", "messages": [{"role": role, "content": content, "tool_call_id": "c"}]}
    return CODECS["openai-chat"].decode_request(json.dumps(body).encode())


def test_audio_in_a_tool_message_is_refused_when_it_is_read() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}
    assert chat([audio]).messages[0].parts == (AudioPart("QUJD", "wav"),)
    with pytest.raises(BadRequest):
        chat([audio], role="tool")
    assert chat([{"type": "refusal", "refusal": "no"}], role="tool").messages[0].parts == (
        ToolResultPart("c", (TextPart("no"),)),
    )
