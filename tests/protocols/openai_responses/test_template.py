"""The shapes of deltas: what is learned, what is matched, what never is."""

from __future__ import annotations

import json

import pytest

from strom.protocols.openai_responses.template import DeltaShape, learn


def frame(
    text: str, number: int | None = 4, *, padding: str | None = None, last: bool = False, space: str = " "
) -> bytes:
    """A delta; `last`: the number stands behind the text."""
    members: dict[str, object] = {"type": "response.output_text.delta"}
    if number is not None and not last:
        members["sequence_number"] = number
    members |= {"item_id": "msg_1", "delta": text, "logprobs": []}
    if padding is not None:
        members["obfuscation"] = padding
    if number is not None and last:
        members["sequence_number"] = number
    data = json.dumps(members, ensure_ascii=False, separators=(",", ":" + space))
    return f"event: response.output_text.delta\ndata: {data}\n\n".encode()


def shape_of(raw: bytes, text: str, number: int | None) -> DeltaShape:
    shape = learn(raw, text, number)
    assert shape is not None
    return shape


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, "aB3"])
@pytest.mark.parametrize("number", [None, 9])
@pytest.mark.parametrize("space", ["", " "])
def test_the_next_frame_is_recognised(last: bool, padding: str | None, number: int | None, space: str) -> None:
    def make(text: str, at: int | None, padding: str | None) -> bytes:
        return frame(text, at, padding=padding, last=last, space=space)

    shape = shape_of(make("a", number, padding), "a", number)
    following = None if number is None else number + 1
    longer = None if padding is None else "Zz99"
    for text in ("b", "a longer one", "\u20ac", 'q"u\\o\nte'):
        raw = make(text, following, longer)
        assert shape.match(raw, 10) == text
        assert shape.render(shape.raw, shape.rest, 10) == raw
        assert shape.match(raw[:-1], 10) is None
        assert shape.match(raw + b"x", 10) is None
        assert shape.match(raw + raw, 10) is None
        if number is not None:
            assert shape.match(raw, 11) is None
    assert shape.match(make("", following, longer), 10) in (None, "")


def test_what_is_no_string_is_no_text() -> None:
    shape = shape_of(frame("a"), "a", 4)
    good = frame("b", 5)
    assert shape.match(good.replace(b'"b"', b'"b","delta":"c"'), 5) is None
    assert shape.match(good.replace(b'"b"', b'"b\xff"'), 5) is None
    assert shape.match(good.replace(b'"b"', b'"b\n"'), 5) is None
    assert shape.match(good.replace(b'"b"', b"7"), 5) is None


def test_padding_is_a_plain_word() -> None:
    shape = shape_of(frame("a", padding="xyz"), "a", 4)
    assert shape.match(frame("b", 5, padding="x-z"), 5) is None
    assert shape.match(frame("b", 5, padding=""), 5) is None
    assert shape.match(frame("b", 5), 5) is None


@pytest.mark.parametrize(
    ("raw", "text", "number"),
    [
        (frame("a\n"), "a\n", 4),  # an escape
        (frame("a"), "b", 4),  # another text
        (frame("a"), "a", 5),  # another number
        (frame("a"), "a", None),  # a number that nobody read
        (frame("a", None), "a", 4),  # a number that is not there
        (frame("a").replace(b'"item_id"', b'"delta":"a","item_id"'), "a", 4),  # twice
        (frame("a").replace(b'"item_id"', b'"sequence_number": 4,"item_id"'), "a", 4),
        (frame("a").replace(b": 4,", b": 4.0,"), "a", 4),
        (frame("a").replace(b'"a"', b"7"), "a", 4),
        (frame("a", padding="x").replace(b'"x"', b"7"), "a", 4),
        (frame("a").replace(b'"item_id"', b'"obfuscation": "x","item_id"'), "a", 4),  # padding before the text
    ],
)
def test_what_cannot_be_told_safely_is_not_learned(raw: bytes, text: str, number: int | None) -> None:
    assert learn(raw, text, number) is None
