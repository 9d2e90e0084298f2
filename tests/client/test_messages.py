"""Messages, media, prompt files (rows M-74, B-32; issue item 8)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import strom
from strom.client.messages import fill, load_prompt
from strom.core import messages as core
from tests.client.rig import Rig, text_answer


def sent(messages: Any, **options: Any) -> list[dict[str, Any]]:
    rig = Rig([text_answer()])
    rig.play(messages, **options)
    found: list[dict[str, Any]] = rig.bodies()[0]["messages"]
    return found


def test_what_a_message_may_be() -> None:
    assert sent("Hi") == [{"role": "user", "content": "Hi"}]
    assert sent(strom.Message.user("Hi")) == [{"role": "user", "content": "Hi"}]
    assert sent({"role": "user", "content": "Hi"}) == [{"role": "user", "content": "Hi"}]
    mixed = [
        "a",
        {"role": "assistant", "content": "b"},
        strom.Message.user("c"),
        core.Message("assistant", (core.TextPart("d"),)),
        "e",
    ]
    assert [message["content"] for message in sent(mixed)] == ["a", "b", "c", "d", "e"]
    assert sent("Hi", system="Rules")[0] == {"role": "system", "content": "Rules"}
    assert [message["role"] for message in sent([strom.Message.system("s"), strom.Message.assistant("a"), "u"])] == [
        "system", "assistant", "user",
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [[], [3], {"role": "ghost", "content": "x"}])
def test_what_is_no_message_is_told(wrong: Any) -> None:
    with pytest.raises(strom.BadRequest):
        sent(wrong)


def test_media_from_path_bytes_and_url(tmp_path: Path) -> None:
    file = tmp_path / "cat.png"
    file.write_bytes(b"png")
    uri = "data:image/png;base64," + base64.b64encode(b"png").decode()
    for image in (strom.Image.from_path(file), strom.Image.from_bytes(b"png", "image/png"), strom.Image.from_url(uri)):
        parts = sent(strom.Message.user("Look", image))[0]["content"]
        assert parts[1]["image_url"]["url"] == uri
    far = sent(strom.Message.user(strom.Image.from_url("https://example.org/c.png")))[0]["content"]
    assert far[0]["image_url"]["url"] == "https://example.org/c.png"


@pytest.mark.parametrize("uri", ["data:image/png,plain", "data:image/png;base64", "data:image/png;base64,%%%"])
def test_broken_data_uris(uri: str) -> None:
    with pytest.raises(strom.BadRequest):
        strom.Image.from_url(uri)


def test_missing_files_are_told() -> None:
    with pytest.raises(strom.BadRequest, match="cannot be read"):
        strom.Image.from_path("/nowhere/cat.png")


def test_documents() -> None:
    text = sent(strom.Message.user(strom.Document.from_bytes(b"words", "text/plain", "a.txt")))
    assert "words" in str(text[0]["content"])
    pdf = sent(strom.Message.user(strom.Document.from_bytes(b"%PDF", "application/pdf", "a.pdf")))
    assert pdf[0]["content"][0]["file"]["filename"] == "a.pdf"


def test_audio_formats() -> None:
    audio = sent(strom.Message.user(strom.Audio.from_bytes(b"x", "audio/mpeg")))
    assert audio[0]["content"][0]["input_audio"]["format"] == "mp3"
    with pytest.raises(strom.BadRequest, match="WAV or MP3"):
        sent(strom.Message.user(strom.Audio.from_bytes(b"x", "audio/ogg")))


def test_video_as_data() -> None:
    video = sent(strom.Message.user(strom.Video.from_bytes(b"x", "video/mp4")))
    assert video[0]["content"][0]["video_url"]["url"].startswith("data:video/mp4;base64,")


def test_prompt_files(tmp_path: Path) -> None:
    prompt, inner = tmp_path / "p.md", tmp_path / "inner.txt"
    prompt.write_text("Dear {{ name }}:\n{{body}}!", "utf-8")
    inner.write_text("{{not looked at}}", "utf-8")
    message = strom.Message.from_file(prompt, name="Ann", body=inner)
    assert message.canonical().text == "Dear Ann:\n{{not looked at}}!"
    assert load_prompt(prompt, name=1, body=2) == "Dear 1:\n2!"


@pytest.mark.parametrize("template", ["{{missing}}", "{{open"])
def test_broken_templates(template: str) -> None:
    with pytest.raises(strom.BadRequest):
        fill(template, name="x")


def test_missing_prompt_files(tmp_path: Path) -> None:
    with pytest.raises(strom.BadRequest):
        load_prompt(tmp_path / "none")
    with pytest.raises(strom.BadRequest):
        fill("{{a}}", a=tmp_path / "none")


def test_every_setting_of_a_config_goes_out() -> None:
    config = strom.CompletionConfig(
        temperature=0.5, top_p=0.9, seed=7, max_tokens=11, stop=("END",), frequency_penalty=0.1, presence_penalty=0.2,
        reasoning="low", user="u", parallel_tool_calls=False, tool_choice="f", extra={"custom": [1]},
    )  # fmt: skip
    rig = Rig([text_answer()])
    rig.play(config=config, tools=[{"name": "f"}])
    body = rig.bodies()[0]
    expected = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 11, "stop": ["END"], "frequency_penalty": 0.1,
                "presence_penalty": 0.2, "reasoning_effort": "low", "user": "u", "parallel_tool_calls": False,
                "custom": [1]}  # fmt: skip
    assert {name: body[name] for name in expected} == expected
    assert body["tool_choice"]["function"]["name"] == "f"


def test_ollama_options() -> None:
    rig = Rig([], name="ollama/m")
    rig.open(config=strom.CompletionConfig(num_ctx=4096, max_tokens=5, keep_alive="5m", reasoning="disabled"))
    import json

    body = json.loads(rig.run.job.build(rig.run.job.wish)[0].request.body)
    assert body["options"] == {"num_ctx": 4096, "num_predict": 5}
    assert (body["keep_alive"], body["think"]) == ("5m", False)
