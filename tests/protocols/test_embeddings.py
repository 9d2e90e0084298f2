"""OpenAI's embeddings in both directions, with one recording of a real server, and read by the official SDK's types."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CreateEmbeddingResponse

from strom.core.errors import BadRequest, ProviderError
from strom.core.messages import Json
from strom.protocols.embeddings import (
    PATH,
    EmbeddingReply,
    EmbeddingRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    from_base64,
    relay_reply,
    relay_request,
    to_base64,
)
from tests.recordings import load


def request(**members: object) -> EmbeddingRequest:
    return decode_request(json.dumps({"model": "m", "input": "x", **members}).encode())


@pytest.mark.parametrize(
    ("given_input", "texts", "tokens", "single"),
    [
        ("a", ("a",), (), True),
        (["a", "b"], ("a", "b"), (), False),
        ([1, 2], (), ((1, 2),), True),
        ([[1, 2], [3]], (), ((1, 2), (3,)), False),
    ],
)
def test_inputs(given_input: object, texts: tuple[str, ...], tokens: tuple[tuple[int, ...], ...], single: bool) -> None:
    decoded = request(input=given_input)
    assert (decoded.texts, decoded.tokens, decoded.single) == (texts, tokens, single)
    assert decoded.count == len(texts) + len(tokens)


def test_the_other_members() -> None:
    assert request(dimensions=2, encoding_format="base64", user="joe", x=[1], stream=False) == EmbeddingRequest(
        "openai-chat",
        "m",
        ("x",),
        single=True,
        dimensions=2,
        encoding="base64",
        user="joe",
        extras=(("x", Json("[1]")),),
    )
    assert request(encoding_format="float").encoding == "float"


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"stream": True}, "do not stream"),
        ({"model": ""}, "model"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"input": ""}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": {}}, "not valid"),
    ],
)
def test_bad_requests(members: dict[str, object], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        request(**members)


def test_a_body_that_is_no_object() -> None:
    for body in (b"nope", b"[1]"):
        with pytest.raises(BadRequest):
            decode_request(body)
        with pytest.raises(BadRequest):
            relay_request(body, "up")


REPLY = EmbeddingReply("up", [[0.5, -1.0], [2.0, 3.0]], 7)


def test_numbers_and_base64_out() -> None:
    read = CreateEmbeddingResponse.model_validate_json(encode_reply(REPLY, request()))
    assert [(item.index, item.embedding) for item in read.data] == [(0, [0.5, -1.0]), (1, [2.0, 3.0])]
    assert (read.model, read.object, read.usage.prompt_tokens, read.usage.total_tokens) == ("m", "list", 7, 7)
    data = json.loads(encode_reply(REPLY, request(encoding_format="base64")))["data"]
    assert struct.unpack("<2f", b64decode(data[0]["embedding"])) == (0.5, -1.0)


def test_a_count_nobody_reported_is_estimated() -> None:
    silent = EmbeddingReply("up", [[1.0]])
    assert json.loads(encode_reply(silent, request(input="12345")))["usage"]["prompt_tokens"] == 2
    assert json.loads(encode_reply(silent, request(input=[1, 2, 3])))["usage"]["prompt_tokens"] == 3


def test_encode_request() -> None:
    call = encode_request(request(input=["a"], dimensions=2, user="joe", encoding_format="base64", x=1), "up")
    assert call.path == PATH
    assert json.loads(call.body) == {
        "model": "up", "input": ["a"], "dimensions": 2, "encoding_format": "base64", "user": "joe",
    }  # fmt: skip
    assert call.dropped == ("x",)
    assert json.loads(encode_request(request(), "up").body) == {"model": "up", "input": "x", "encoding_format": "float"}
    assert json.loads(encode_request(request(input=[1, 2]), "up").body)["input"] == [[1, 2]]
    foreign = EmbeddingRequest("ollama", "m", ("a",), truncate=False, keep_alive=Json("0"), options=Json("{}"))
    assert encode_request(foreign, "up").dropped == ("truncate", "keep_alive", "options")


def test_decode_reply() -> None:
    items = [{"index": 1, "embedding": [2, 3]}, {"index": 0, "embedding": to_base64([0.5, -1.0])}]
    body = json.dumps({"model": "up", "data": items, "usage": {"prompt_tokens": 7}}).encode()
    assert decode_reply(body, 2) == REPLY
    assert decode_reply(b'{"data":[{"embedding":[1]},{"embedding":[2]}]}', 2) == EmbeddingReply("", [[1.0], [2.0]])


@pytest.mark.parametrize(
    "body",
    [
        b"nope",
        b"{}",
        b'{"data":[{"embedding":[1]}]}',
        b'{"data":[{"embedding":[1]},{}]}',
        b'{"data":[{"embedding":"!"},{"embedding":"AAAA"}]}',
        b'{"data":[{"embedding":"AAA="},{"embedding":[1]}]}',
        b'{"error":{"message":"x"}}',
    ],
)
def test_what_is_no_answer(body: bytes) -> None:
    with pytest.raises(ProviderError):
        decode_reply(body, 2)


def test_relay_keeps_the_bytes() -> None:
    call = relay_request(b'{"input": [1 ,2],"model":"x","user":null,"y":1.0}', "up")
    assert call.body == b'{"input":[1 ,2],"model":"up","y":1.0}'
    body = b'{"data":[{"embedding":[1.50]}],"usage":{"prompt_tokens":1},"x":1}'
    assert relay_reply(body, request()) == body
    assert json.loads(relay_reply(body, request(encoding_format="base64")))["data"][0]["embedding"] == to_base64([1.5])
    coded = json.dumps({"data": [{"embedding": to_base64([1.5])}], "usage": {"prompt_tokens": 1}}).encode()
    assert relay_reply(coded, request(encoding_format="base64")) == coded
    assert json.loads(relay_reply(coded, request()))["data"][0]["embedding"] == [1.5]
    assert json.loads(relay_reply(b'{"data":[{"embedding":[1]}]}', request()))["usage"]["prompt_tokens"] == 1


def test_a_real_answer() -> None:
    recording = load("xllamacpp_embed", "embeddings")
    asked = decode_request(json.dumps(recording.request["body"]).encode())
    assert relay_reply(recording.response, asked) == recording.response
    reply = decode_reply(recording.response, asked.count)
    assert (len(reply.vectors), reply.input_tokens) == (2, 2)
    read = CreateEmbeddingResponse.model_validate_json(encode_reply(reply, asked))
    assert read.data[1].embedding == reply.vectors[1]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_base64_there_and_back(vector: list[float]) -> None:
    assert from_base64(to_base64(vector)) == vector


def test_a_number_that_is_no_float32() -> None:
    with pytest.raises(ProviderError):
        to_base64([1e300])
    assert b64encode(struct.pack("<f", 1.0)).decode() == to_base64([1.0])
