"""An Ollama stream for an Ollama client: byte for byte where it is legal, single lines put right, the block on the last."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.errors import IncompleteCompletion, IncompleteStream, InvalidStreamEvent, ProviderError
from strom.core.evidence import Evidence
from strom.core.usage import Usage
from strom.protocols.codec import Codec, Quirks, ReplyContext
from strom.protocols.ollama import CODEC, GENERATE_CODEC
from tests.grammar.ollama import read
from tests.protocols.ollama.lines import BLOCK, STRICT, call, context, done, dump, line, part

LEGAL = [
    line("", x_vendor={"keep": [1.0]}),
    line("Hello "),
    line("wörld "),
    line("again\n", at="2026-01-05T10:00:03.1+01:00"),
    line("once "),
    line(thinking="Hm", at="2026-01-05T10:00:04Z"),
    line(thinking="mm"),
    line(tool_calls=[call("f", {"a": 1})]),
]


def relay(
    chunks: list[bytes], quirks: Quirks = STRICT, reply: ReplyContext | None = None, codec: Codec = CODEC
) -> tuple[bytes, Evidence]:
    piped = codec.relay(reply or context(), quirks)
    out = b"".join(piped.feed(chunk) for chunk in chunks) + piped.finish()
    assert piped.feed(line("late")) == b""
    assert piped.finish() == b""
    assert piped.heartbeat() == b""
    return out, piped.evidence


def with_block(last: bytes) -> bytes:
    return last.rstrip()[:-1] + b',"strom":' + BLOCK + b"}\n"


@pytest.mark.parametrize("size", [0, 1, 3, 50, 10_000])
def test_legal_lines_are_relayed_byte_for_byte(size: int) -> None:
    body = b"".join([*LEGAL, done(x_end=1)])
    chunks = [body[at : at + size] for at in range(0, len(body), size)] if size else [*LEGAL, done(x_end=1)]
    out, evidence = relay(chunks)
    assert out == b"".join(LEGAL) + with_block(done(x_end=1))
    assert evidence.complete
    assert evidence.error is None
    assert (evidence.finish_reason, evidence.finish_raw, evidence.tool_calls) == ("tool_calls", "stop", 1)
    assert (evidence.model, evidence.first_token_kind, evidence.deltas) == ("qwen3", "content", 7)
    assert evidence.output_characters == len("Hello wörld again\nonce Hmmm") + len('{"a":1}')
    assert evidence.usage is not None
    assert (evidence.usage.input_tokens, evidence.usage.output_tokens) == (9, 3)
    read(out, strict=False)


def test_without_a_block_the_whole_body_is_untouched() -> None:
    body = [*LEGAL, done()[:-1] + b"\r\n"]
    assert relay(body, reply=context(block=lambda: None))[0] == b"".join(body)


def test_each_line_leaves_at_once() -> None:
    piped = CODEC.relay(context(), STRICT)
    for raw in LEGAL:
        assert piped.feed(raw) == raw
    assert piped.evidence.first_token_kind == "content"


def test_the_evidence_is_complete_before_the_block_is_asked_for() -> None:
    seen: list[tuple[bool, str | None, Usage | None]] = []

    def block() -> bytes:
        seen.append((piped.evidence.complete, piped.evidence.finish_reason, piped.evidence.usage))
        return b"{}"

    piped = CODEC.relay(context(block=block), STRICT)
    piped.feed(line("a") + done(total_duration=None))
    assert len(seen) == 1
    assert seen[0][:2] == (True, "stop")
    assert seen[0][2] is not None


def test_generate_with_its_context() -> None:
    body = [part("Hi "), part("you "), part("", thinking="t"), part("", done=True, done_reason="stop", context=[1, 2])]
    out, evidence = relay(body, codec=GENERATE_CODEC)
    assert out == b"".join(body[:-1]) + with_block(body[-1])
    assert evidence.complete
    assert read(out, form="generate", strict=False).last["context"] == [1, 2]


# --- repairs -----------------------------------------------------------------------------------------


def repaired(raw: bytes, codec: Codec = CODEC, quirks: Quirks = STRICT) -> dict[str, object]:
    piped = codec.relay(context(), quirks)
    before = line("before ") if codec is CODEC else part("before ")
    out = piped.feed(before + raw)
    assert out.startswith(before)
    assert piped.evidence.error is None
    value: dict[str, object] = json.loads(out[len(before) :])
    return value


def edited(raw: bytes, *path: str, value: object = "gone") -> bytes:
    """The line with a member removed, or set."""
    whole = json.loads(raw)
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    if value == "gone":
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return dump(whole)


def said(content: str = "", **members: object) -> dict[str, object]:
    return {"message": {"role": "assistant", "content": content, **members}}


def calling(*calls: object) -> bytes:
    return line(tool_calls=list(calls))


BROKEN: list[tuple[bytes, dict[str, object]]] = [
    (edited(line("x"), "model"), {"model": "asked-for"}),
    (edited(line("x"), "created_at"), {"created_at": "2026-01-05T10:00:00Z"}),
    (edited(line("x"), "done"), {"done": False}),
    (edited(line("x"), "message", "role"), said("x")),
    (edited(line("x"), "message", "role", value=""), said("x")),
    (edited(line(thinking="t"), "message", "content", value=None), said(thinking="t")),
    (edited(line("x"), "message", value=None), said()),
    (line("x", error=None), said("x")),
    (calling(call("f", '{"a":1}')), said(tool_calls=[call("f", {"a": 1})])),
    (calling(call("f", {}, id=7)), said(tool_calls=[call("f", {}, id="7")])),
    (calling(call("f", {}), {"function": {}}), said(tool_calls=[call("f", {})])),
    (calling(call("f", "{x")), said(tool_calls=[call("f", {"_raw": "{x"})])),
    (part("x", thinking="t"), said("x", thinking="t")),
]


@pytest.mark.parametrize(("raw", "wanted"), BROKEN)
def test_a_broken_line_is_put_right_and_keeps_the_rest(raw: bytes, wanted: dict[str, object]) -> None:
    value = repaired(edited(raw, "x_vendor", value=[1]))
    assert {name: value[name] for name in wanted} == wanted
    assert value["x_vendor"] == [1]
    assert "error" not in value
    read(dump(value), strict=False, complete=False)


def test_broken_lines_of_generate() -> None:
    value = repaired(line("x", thinking="t"), GENERATE_CODEC)
    assert (value["response"], value["thinking"], "message" in value) == ("x", "t", False)
    assert repaired(part(None, tool_calls=None), GENERATE_CODEC)["response"] == ""  # type: ignore[arg-type]
    value = repaired(part("", tool_calls=[call("f", "")]), GENERATE_CODEC)
    assert value["tool_calls"] == [call("f", {})]


def test_a_done_line_without_its_message() -> None:
    out, evidence = relay([line("a"), edited(done(), "message")])
    assert read(out, strict=False).last["message"] == {"role": "assistant", "content": ""}
    assert evidence.complete


def test_blank_lines_are_left_out() -> None:
    assert relay([b"\n", line("a") + b"\r\n", done()])[0] == line("a") + with_block(done())


HALF_A_PAIR = line("PAIR").replace(b"PAIR", b"\\ud800")


@pytest.mark.parametrize("raw", [b'{"status":"pulling"}\n', line("x", eval_count="many"), HALF_A_PAIR, b'{"done":0}\n'])
def test_legal_json_that_nobody_understands_passes_on(raw: bytes) -> None:
    out, evidence = relay([line("a"), raw, done()])
    assert out == line("a") + raw + with_block(done())
    assert evidence.complete


def test_a_done_line_with_strange_members_is_proof_still() -> None:
    strange = done(eval_count="many")
    out, evidence = relay([line("a"), strange])
    assert out == line("a") + with_block(strange)
    assert (evidence.complete, evidence.finish_reason) == (True, "stop")
    assert relay([line("a"), b'{"error":"broke","done":false,"model":5}\n'])[1].error is not None


# --- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([line("a")], IncompleteStream),
        ([line("a"), done(done_reason=None)], IncompleteCompletion),
        ([line("a"), dump({"error": "broke"})], ProviderError),
        ([line("a"), b"nope\n"], InvalidStreamEvent),
        ([line("a"), b"[1]\n"], InvalidStreamEvent),
        ([line("a"), b"x" * 500], InvalidStreamEvent),
        ([line("a"), line(tool_calls=[call("f", "X")]).replace(b'"X"', b'"\xff"')], InvalidStreamEvent),
    ],
)
def test_an_unproven_end_puts_nothing_out(chunks: list[bytes], kind: type) -> None:
    out, evidence = relay(chunks, Quirks(max_frame_bytes=490))
    assert out == line("a")
    assert isinstance(evidence.error, kind)
    assert not evidence.complete


def test_the_error_line_is_words_alone() -> None:
    piped = CODEC.relay(context(), STRICT)
    assert read(piped.feed(line("a")) + piped.fail(ProviderError("It broke."))).error == "It broke."


def test_the_done_line_counts_without_its_line_end() -> None:
    out, evidence = relay([line("a"), done()[:-1]])
    assert out == line("a") + with_block(done())
    assert evidence.complete


def test_quirks() -> None:
    out, evidence = relay([line("a"), done(done_reason=None)], Quirks(finish_reason_required=False))
    assert read(out, strict=False).finish == "stop"
    assert (evidence.finish_reason, evidence.finish_assumed) == ("stop", True)
    out, evidence = relay(
        [line("a"), edited(line("b", done_reason="length"), "x", value=1)], Quirks(done_required=False)
    )
    assert evidence.complete
    assert json.loads(out.splitlines()[-1])["done_reason"] == "length"
    assert out.endswith(b',"strom":' + BLOCK + b"}\n")


def test_heartbeat() -> None:
    piped = CODEC.relay(context(), STRICT)
    assert read(piped.heartbeat() + piped.feed(done()), strict=False).idle == 1


# --- reasoning ---------------------------------------------------------------------------------------

THOUGHTS = [line(thinking="Hm"), line(thinking="m"), line("a", thinking="!"), line("b"), line("c "), line("d "), done()]


def test_reasoning_dropped() -> None:
    seen = read(relay(THOUGHTS, reply=context(reasoning="drop"))[0], strict=False)
    assert (seen.thinking, seen.text, len(seen.kinds)) == ("", "abc d ", 4)


def test_reasoning_as_text() -> None:
    seen = read(relay(THOUGHTS, reply=context(reasoning="text"))[0], strict=False)
    assert (seen.thinking, seen.text) == ("", "<think>\nHmm!\n</think>\n\nabc d ")
    for more in ([line(""), line(tool_calls=[call("f", {})]), done()], [done()]):
        seen = read(relay([*THOUGHTS[:2], *more], reply=context(reasoning="text"))[0], strict=False)
        assert seen.text == "<think>\nHmm\n</think>\n\n"
    out, _ = relay([THOUGHTS[0], line("", done_reason="stop")], Quirks(done_required=False), context(reasoning="text"))
    assert "".join(json.loads(raw)["message"]["content"] for raw in out.splitlines()) == "<think>\nHm\n</think>\n\n"


def test_reasoning_of_generate_dropped() -> None:
    body = [part("", thinking="Hm"), part("a", thinking="m"), part("b"), part("", done=True, done_reason="stop")]
    out, _ = relay(body, reply=context(reasoning="drop"), codec=GENERATE_CODEC)
    seen = read(out, form="generate", strict=False)
    assert (seen.thinking, seen.text) == ("", "ab")


# --- anything ----------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([raw for raw, _ in BROKEN] + THOUGHTS)), max_size=6),
    st.sampled_from(["native", "text", "drop"]),
)
def test_garbage_raises_nothing(chunks: list[bytes], reasoning: str) -> None:
    piped = CODEC.relay(context(reasoning=reasoning), STRICT)
    for chunk in chunks:
        piped.feed(chunk)
    piped.finish()
    assert piped.evidence.ended
