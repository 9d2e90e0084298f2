"""Tokens of real models, one by one, in the hands of curl, the official SDKs and Claude Code."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.live import programs

pytestmark = pytest.mark.live

PROMPT = "Write two sentences about the sea."
LIMIT = 48
MODEL = "default_model"
"""The one name that mlx_lm.server takes for the model it was started with; llama.cpp takes any."""


@pytest.fixture(params=["embedded", "mlx"])
def gateway(request: pytest.FixtureRequest) -> programs.Gateway:
    running: programs.Gateway = request.getfixturevalue(f"{request.param}_gateway")
    return running


def claude(gateway: programs.Gateway, clients: Path, folder: Path, *arguments: str, **environment: str) -> str:
    """Claude Code without a terminal; what it wrote, errors included."""
    (folder / "home").mkdir()
    settings = {
        "ANTHROPIC_BASE_URL": gateway.url,
        "ANTHROPIC_API_KEY": "dummy",
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        **environment,
    }
    done = subprocess.run(
        [str(clients / "node_modules/.bin/claude"), "-p", PROMPT, "--model", MODEL, *arguments],
        env=programs.clean_environment(folder / "home", **settings),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout + done.stderr


def deltas(output: str) -> list[str]:
    """The pieces of text in Claude Code's own stream of events."""
    found: list[str] = []
    for line in output.splitlines():
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if event.get("type") == "stream_event":
            found.append(event["event"].get("delta", {}).get("text", ""))
    return [text for text in found if text]


def test_curl_sees_tokens_one_by_one(gateway: programs.Gateway) -> None:
    body = {"model": MODEL, "stream": True, "max_tokens": LIMIT, "messages": [{"role": "user", "content": PROMPT}]}
    command = ["curl", "-sN", "--noproxy", "*", f"{gateway.url}/v1/chat/completions", "-d", json.dumps(body)]
    frames: list[str] = []
    arrivals: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        for line in curl.stdout:
            if line.startswith("data: "):
                frames.append(line.removeprefix("data: ").strip())
                arrivals.append(time.monotonic())
    assert frames[-1] == "[DONE]", frames[-3:]
    assert len(frames) > 10
    waits = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert len([wait for wait in waits if wait > 0.001]) > 5, "all frames came at once"


def test_openai_sdk(gateway: programs.Gateway) -> None:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="dummy")
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=LIMIT,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert len(texts) > 5
    assert reasons in (["stop"], ["length"])
    assert [chunk.usage.completion_tokens > 5 for chunk in chunks if chunk.usage] == [True]


def test_openai_sdk_whole(gateway: programs.Gateway) -> None:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="dummy")
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": PROMPT}], max_tokens=LIMIT
    )
    assert reply.choices[0].message.content
    assert reply.usage


def test_anthropic_sdk(gateway: programs.Gateway) -> None:
    client = anthropic.Anthropic(base_url=gateway.url, api_key="dummy")
    with client.messages.stream(
        model=MODEL, max_tokens=LIMIT, messages=[{"role": "user", "content": PROMPT}]
    ) as stream:
        texts = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(texts) > 5
    assert message.stop_reason in {"end_turn", "max_tokens"}
    assert message.usage.output_tokens > 5


def test_claude_code(gateway: programs.Gateway, clients: Path, tmp_path: Path) -> None:
    output = claude(
        gateway,
        clients,
        tmp_path,
        *("--output-format", "stream-json", "--include-partial-messages", "--verbose"),
        CLAUDE_CODE_SIMPLE="1",
        MAX_THINKING_TOKENS="0",
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="64",
    )
    assert len(deltas(output)) > 5, output[-3000:]


def test_claude_code_understands_that_its_prompt_is_too_long(
    embedded_gateway: programs.Gateway, clients: Path, tmp_path: Path
) -> None:
    """Its full first prompt does not fit the small model's context; it parses both numbers out of the error."""
    output = claude(embedded_gateway, clients, tmp_path)
    assert "prompt is too long" in output.lower(), output[-3000:]


def test_the_call_is_in_the_records(embedded_gateway: programs.Gateway) -> None:
    status, body = programs.get(f"{embedded_gateway.url}/platform/v1/traces")
    assert status == 200
    assert any(record["status"] == "completed" for record in json.loads(body)["data"])
