"""Ollama's embeddings, between its own endpoints and OpenAI's."""

from __future__ import annotations

import json

import pytest
from ollama import EmbeddingsResponse, EmbedResponse

from strom.core.errors import BadRequest, ModelNotFound, ProviderError, Unsupported
from strom.core.messages import Json
from strom.protocols import embeddings
from strom.protocols.embeddings import EmbeddingReply, EmbeddingRequest
from strom.protocols.ollama.embed import (
    decode_embed,
    decode_embed_reply,
    decode_embeddings,
    encode_embed_reply,
    encode_embed_request,
    encode_embeddings_reply,
)

REPLY = EmbeddingReply("up", [[0.5, -1.0], [2.0, 3.0]], 7, (("total_duration", 9),))


def test_decode_embed() -> None:
    body = b'{"model":"m","input":["a","b"],"truncate":false,"dimensions":2,"keep_alive":"5m","options":{"num_ctx": 1}'
    body += b',"x":1,"y":null}'
    assert decode_embed(body) == EmbeddingRequest(
        "ollama",
        "m",
        ("a", "b"),
        dimensions=2,
        truncate=False,
        keep_alive=Json('"5m"'),
        options=Json('{"num_ctx": 1}'),
        extras=(("x", Json("1")),),
    )
    assert decode_embed(b'{"model":"m","input":"a"}') == EmbeddingRequest("ollama", "m", ("a",), single=True)
    assert decode_embed(b'{"model":"m"}').texts == ()
    assert decode_embed(b'{"model":"m","input":[]}').texts == ()


def test_decode_the_older_endpoint() -> None:
    assert decode_embeddings(b'{"model":"m","prompt":"a"}') == EmbeddingRequest("ollama", "m", ("a",), single=True)
    assert decode_embeddings(b'{"model":"m","prompt":""}').count == 0


@pytest.mark.parametrize("decode", [decode_embed, decode_embeddings])
@pytest.mark.parametrize("body", [b"nope", b"[]", b"{}", b'{"model":"m","input":[1],"prompt":1}'])
def test_bad_requests(decode: object, body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(body)  # type: ignore[operator]


def test_replies_are_read_by_the_official_types() -> None:
    request = decode_embed(b'{"model":"asked","input":["a","b"]}')
    read = EmbedResponse.model_validate_json(encode_embed_reply(REPLY, request))
    assert (read.model, read.embeddings, read.prompt_eval_count, read.total_duration) == ("asked", REPLY.vectors, 7, 9)
    assert "prompt_eval_count" not in json.loads(encode_embed_reply(EmbeddingReply("", []), request))
    assert EmbeddingsResponse.model_validate_json(encode_embeddings_reply(REPLY)).embedding == [0.5, -1.0]
    assert json.loads(encode_embeddings_reply(EmbeddingReply("", []))) == {"embedding": []}


def test_encode_request() -> None:
    own = decode_embed(
        b'{"model":"m","input":["a"],"truncate":true,"dimensions":2,"keep_alive":0,"options":{"num_ctx":1},"x":1}'
    )
    call = encode_embed_request(own, "up")
    assert call.path == "/api/embed"
    assert json.loads(call.body) == {
        "model": "up", "input": ["a"], "truncate": True, "dimensions": 2, "keep_alive": 0, "options": {"num_ctx": 1}, "x": 1,
    }  # fmt: skip
    foreign = embeddings.decode_request(b'{"model":"m","input":"a","user":"joe","x":1,"encoding_format":"base64"}')
    call = encode_embed_request(foreign, "up")
    assert json.loads(call.body) == {"model": "up", "input": "a"}
    assert call.dropped == ("x", "user")


def test_tokens_cannot_be_sent() -> None:
    with pytest.raises(Unsupported, match="tokens"):
        encode_embed_request(embeddings.decode_request(b'{"model":"m","input":[1,2]}'), "up")


def test_decode_reply() -> None:
    body = b'{"model":"up","embeddings":[[0.5,-1],[2,3]],"total_duration":9,"prompt_eval_count":7}'
    assert decode_embed_reply(body, 2) == REPLY
    assert decode_embed_reply(b'{"embedding":[1.5]}', 1) == EmbeddingReply("", [[1.5]])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"nope", ProviderError),
        (b"{}", ProviderError),
        (b'{"embeddings":[[1],[]]}', ProviderError),
        (b'{"embeddings":[[1]]}', ProviderError),
        (b'{"embeddings":[["x"],[1]]}', ProviderError),
        (b'{"error":"model \'x\' not found"}', ModelNotFound),
    ],
)
def test_what_is_no_answer(body: bytes, kind: type) -> None:
    with pytest.raises(kind):
        decode_embed_reply(body, 2)
