"""A frame of a known shape is recognised, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.wire.template import FrameTemplate


def frame(text: str, *, ascii_only: bool = False) -> bytes:
    return f'data: {{"d":{{"content":{json.dumps(text, ensure_ascii=ascii_only)}}},"n":0}}\n\n'.encode()


def learned() -> FrameTemplate:
    template = FrameTemplate()
    template.learn(frame("hi"), b"hi")
    return template


@given(st.text(min_size=1), st.booleans())
def test_any_text_in_its_place(text: str, ascii_only: bool) -> None:
    data = frame(text, ascii_only=ascii_only)
    template = learned()
    assert template.match_string(data) == text
    assert template.cut_out(data).decode() == json.dumps(text, ensure_ascii=ascii_only)[1:-1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        frame("hi")[:-1],
        frame("hi")[1:],
        frame("hi") + frame("hi"),
        frame("hi").replace(b"0}", b"1}"),
        frame("XX").replace(b"XX", b""),
        frame("XX").replace(b"XX", b'a","b":"c'),
        frame("XX").replace(b"XX", b"a\\"),
        frame("XX").replace(b"XX", b"a\nb"),
        frame("XX").replace(b"XX", b"a\rb"),
        frame("XX").replace(b"XX", b"a\x01b"),
        frame("XX").replace(b"XX", b"\xff"),
        frame("XX").replace(b"XX", b"\\ud83d"),
        frame("XX").replace(b"XX", b"\\x"),
    ],
)
def test_everything_else_has_to_be_parsed(data: bytes) -> None:
    assert learned().match_string(data) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (frame("hi"), b""),
        (frame("hi"), b"ho"),
        (b'data: {"a":"hi","b":"hi"}\n\n', b"hi"),
        (b'data: {"a":"\\u0068i","model":"hi"}\n\n', b"hi"),
        (b'data: {"a":"hi"}', b"hi"),
    ],
)
def test_what_is_not_learned(raw: bytes, text: bytes) -> None:
    template = FrameTemplate()
    template.learn(raw, text)
    assert template.match_string(raw) is None


def test_forgetting() -> None:
    template = learned()
    template.forget()
    assert template.match_string(frame("hi")) is None


HEAD, TAIL = b'data: {"d":{"content":"', b'"},"f":null}\n\n'


def frames(*texts: bytes) -> bytes:
    return b"".join(HEAD + text + TAIL for text in texts)


def taught() -> FrameTemplate:
    template = FrameTemplate()
    template.learn(frames(b"first"), b"first")
    return template


def test_several_frames_of_one_read() -> None:
    texts = [b"a", b" b\\n", 'é\\"'.encode(), b"\\u00e9"]
    assert taught().match_strings(frames(*texts)) == ["a", " b\n", 'é"', "é"]
    assert taught().match_strings(frames(b"alone")) == ["alone"]


@pytest.mark.parametrize(
    "data",
    [
        frames(b"a", b""),
        frames(b"a") + b"data: [DONE]\n\n",
        frames(b"a") + b": comment\n\n" + frames(b"b"),
        frames(b"a", b"b")[:-1],
        frames(b'a","x":"b', b"c"),
        frames(b"a\\", b"b"),
        frames(b"a", b"\xff"),
        frames(b"a") + frames(b"b").replace(b"null", b'"stop"'),
        b"\n" + frames(b"a", b"b"),
        b"",
    ],
)
def test_anything_else_in_the_read_is_parsed(data: bytes) -> None:
    assert taught().match_strings(data) is None
