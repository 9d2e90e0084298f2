"""The quick way over a line is sound: it answers only for lines that the slow way would read alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strom.protocols.ollama.template import LineTemplate
from tests.protocols.ollama.lines import line

STAMP = b"2026-01-05T10:00:01.123456789Z"


def learned() -> LineTemplate:
    template = LineTemplate()
    assert template.learn(line("tok "), STAMP, b"tok ")
    return template


@given(st.text(min_size=1))
def test_it_gives_the_text_or_nothing(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert learned().match_text(line(text, at="2027-11-05T10:00:01+02:00")) in (text, None)


def test_the_stamp_may_change_and_nothing_else() -> None:
    template = learned()
    assert template.match_text(line("a", at="2026-01-05T10:00:01Z")) == "a"
    assert template.match_text(line("a", at="")) == "a"
    for other in (
        line("a", at="Monday"),
        line("a", at="2" * 60),
        line(""),
        line("a", x=1),
        line("a") + line("b"),
        line("a")[:-1],
        line('a","x":"b'),
        b"",
        line("a").replace(b'"a"', b'"\xff"'),
        line("a").replace(b'"message"', b'"massage"'),
    ):
        assert template.match_text(other) is None


def test_what_is_ambiguous_is_not_learned() -> None:
    template = LineTemplate()
    assert not template.learn(line("x", y="x"), STAMP, b"x")
    assert not template.learn(line("x", at="x"), b"x", b"x")
    assert not template.learn(line(""), STAMP, b"")
    assert not template.learn(line("\n"), STAMP, b"\n")
    assert not template.learn(line("x")[:-1], STAMP, b"x")
    assert not template.learn(b'{"message":{"content":"x"},"created_at":"' + STAMP + b'"}\n', STAMP, b"x")
    assert not template.learn(line("x"), b"another stamp", b"x")
    assert template.match_text(line("x")) is None
