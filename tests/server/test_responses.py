"""Responses that are stored: continued, read, listed, deleted; each belongs to the key it was made with."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from strom.app import make_responses
from strom.config.schema import StoreTable
from strom.config.settings import Settings
from strom.core.access import KeySettings
from strom.transport.memory import Script
from tests.server.responses_rig import (
    ANTHROPIC,
    PATH,
    RESPONSES,
    SSE,
    ResponsesRig,
    chat_frames,
    chat_reply,
    chat_script,
    events,
)
from tests.server.rig import answer, json_script, provider

ANNA, BERT = (
    KeySettings(name, hashlib.sha256(secret.encode()).hexdigest()) for name, secret in (("anna", "a"), ("bert", "b"))
)
AS_ANNA, AS_BERT = ([(b"authorization", b"Bearer a")], [(b"authorization", b"Bearer b")])


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in messages]


async def test_a_conversation_goes_on_from_a_whole_reply() -> None:
    rig = ResponsesRig(chat_reply("first"), chat_reply("second"), chat_reply("third"))
    first = answer(await rig.create({"input": "one"}))
    second = answer(await rig.create({"input": "two", "previous_response_id": first["id"]}))
    await rig.create({"input": "three", "previous_response_id": second["id"]})
    assert texts(rig.sent_body()["messages"]) == [
        ("user", "one"), ("assistant", "first"), ("user", "two"), ("assistant", "second"), ("user", "three"),
    ]  # fmt: skip


async def test_a_conversation_goes_on_from_a_stream() -> None:
    rig = ResponsesRig(chat_script("fir", "st"), chat_script("second"))
    streamed = await rig.create({"input": "one", "stream": True})
    first = events(streamed.body_out)[-1]["response"]
    assert answer(await rig.ask("GET", f"{PATH}/{first['id']}")) == first
    await rig.create({"input": "two", "stream": True, "previous_response_id": first["id"]})
    assert texts(rig.sent_body()["messages"]) == [("user", "one"), ("assistant", "first"), ("user", "two")]


async def test_instructions_are_not_carried_over() -> None:
    rig = ResponsesRig(chat_reply("first"), chat_reply("second"))
    first = answer(await rig.create({"instructions": "old"}))
    await rig.create({"instructions": "new", "previous_response_id": first["id"]})
    assert [m["content"] for m in rig.sent_body()["messages"] if m["role"] == "system"] == ["new"]


@pytest.mark.parametrize("stream", [False, True])
async def test_store_false_keeps_nothing(stream: bool) -> None:
    rig = ResponsesRig(chat_script("x") if stream else chat_reply("x"))
    exchange = await rig.create({"store": False, "stream": stream})
    made = events(exchange.body_out)[-1]["response"] if stream else answer(exchange)
    assert (await rig.ask("GET", f"{PATH}/{made['id']}")).status == 404


async def test_a_switched_off_store_keeps_nothing() -> None:
    rig = ResponsesRig(chat_reply("x"), store=False)
    made = answer(await rig.create({}))
    assert (await rig.ask("GET", f"{PATH}/{made['id']}")).status == 404
    assert (await rig.ask("DELETE", f"{PATH}/{made['id']}")).status == 404
    refused = await rig.create({"previous_response_id": made["id"]})
    assert (refused.status, answer(refused)["error"]["code"]) == (400, "previous_response_not_found")
    assert (await rig.create({"background": True})).status == 400


async def test_an_unknown_previous_response_is_named() -> None:
    rig = ResponsesRig()
    refused = await rig.create({"previous_response_id": "resp_gone"})
    error = answer(refused)["error"]
    assert refused.status == 400
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert "resp_gone" in error["message"]
    assert rig.client.sent == []
    record = rig.store.list().records[0]
    assert (record.status, record.http_status, record.model_requested) == ("rejected", 400, "m")


async def test_an_upstream_of_responses_may_know_more() -> None:
    rig = ResponsesRig(json_script({"error": {"message": "no"}}, 400), behind=RESPONSES)
    await rig.create({"previous_response_id": "resp_theirs", "input": [{"type": "item_reference", "id": "msg_9"}]})
    sent = rig.sent_body()
    assert sent["previous_response_id"] == "resp_theirs"
    assert sent["input"] == [{"type": "item_reference", "id": "msg_9"}]


async def test_with_any_other_endpoint_in_the_plan_an_unknown_id_is_refused() -> None:
    rig = ResponsesRig(behind=ANTHROPIC)
    assert (await rig.create({"previous_response_id": "resp_x"})).status == 400
    assert (await rig.create({"input": [{"type": "item_reference", "id": "msg_9"}]})).status == 404
    refused = await rig.create({"conversation": "conv_1"})
    assert (refused.status, answer(refused)["error"]["param"]) == (400, "conversation")
    assert rig.client.sent == []


async def test_conversation_and_previous_response_exclude_each_other() -> None:
    rig = ResponsesRig(behind=RESPONSES)
    assert (await rig.create({"conversation": "conv_1", "previous_response_id": "resp_1"})).status == 400


async def test_an_item_reference_is_resolved() -> None:
    rig = ResponsesRig(chat_reply("first"), chat_reply("second"))
    item = answer(await rig.create({}))["output"][0]
    await rig.create({"input": [{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "two"}]})
    assert texts(rig.sent_body()["messages"]) == [("assistant", "first"), ("user", "two")]


async def test_an_unproven_answer_is_not_stored() -> None:
    rig = ResponsesRig(Script(200, SSE, ((chat_frames("half", finish=None),),)))
    streamed = await rig.create({"stream": True})
    last = events(streamed.body_out)[-1]
    assert last["type"] == "response.failed"
    assert (await rig.ask("GET", f"{PATH}/{last['response']['id']}")).status == 404


async def test_each_key_sees_its_own() -> None:
    rig = ResponsesRig(chat_reply("x"), chat_reply("y"), keys=(ANNA, BERT))
    made = answer(await rig.create({}, AS_ANNA))
    path = f"{PATH}/{made['id']}"
    for method, below in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        assert (await rig.ask(method, path + below, headers=AS_BERT)).status == 404
    assert (await rig.create({"previous_response_id": made["id"]}, AS_BERT)).status == 400
    item = {"type": "item_reference", "id": made["output"][0]["id"]}
    assert (await rig.create({"input": [item]}, AS_BERT)).status == 404
    assert answer(await rig.ask("GET", path, headers=AS_ANNA)) == made
    assert (await rig.ask("GET", path)).status == 401


async def test_delete() -> None:
    rig = ResponsesRig(chat_reply("x"))
    path = f"{PATH}/{answer(await rig.create({}))['id']}"
    deleted = answer(await rig.ask("DELETE", path))
    assert deleted == {"id": path.rpartition("/")[2], "object": "response", "deleted": True}
    assert (await rig.ask("GET", path)).status == 404
    assert (await rig.ask("DELETE", path)).status == 404


async def test_retention_ends() -> None:
    rig = ResponsesRig(chat_reply("x"))
    path = f"{PATH}/{answer(await rig.create({}))['id']}"
    rig.wall.now += 3599
    assert (await rig.ask("GET", path)).status == 200
    rig.wall.now += 2
    assert (await rig.ask("GET", path)).status == 404


async def test_input_items() -> None:
    rig = ResponsesRig(chat_reply("x"))
    items = [
        {"role": "user", "content": "a"},
        {"id": "msg_b", "role": "assistant", "content": "b"},
        {"role": "user", "content": []},
    ]
    path = f"{PATH}/{answer(await rig.create({'input': items}))['id']}/input_items"
    page = answer(await rig.ask("GET", path))
    assert [item["type"] for item in page["data"]] == ["message"] * 3
    assert page["data"][1] == {
        "type": "message", "id": "msg_b", "role": "assistant", "content": [{"type": "output_text", "text": "b"}],
    }  # fmt: skip
    assert (page["object"], page["has_more"], page["last_id"]) == ("list", False, page["data"][2]["id"])
    first = answer(await rig.ask("GET", path + "?order=asc&limit=1"))
    assert first["data"][0]["content"] == [{"type": "input_text", "text": "a"}]
    assert first["has_more"] is True
    rest = answer(await rig.ask("GET", f"{path}?order=asc&after={first['last_id']}"))
    assert [item["id"] for item in rest["data"]] == ["msg_b", page["data"][0]["id"]]
    for bad in ("limit=0", "limit=x", "after=nothing"):
        assert (await rig.ask("GET", f"{path}?{bad}")).status == 400


async def test_a_response_that_did_not_run_in_the_background_is_not_cancelled_or_streamed() -> None:
    rig = ResponsesRig(chat_reply("x"))
    path = f"{PATH}/{answer(await rig.create({}))['id']}"
    assert (await rig.ask("POST", f"{path}/cancel")).status == 400
    assert (await rig.ask("GET", f"{path}?stream=true")).status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/resp_1", 405),
        ("GET", "/resp_1/cancel", 405),
        ("GET", "/resp_1/unknown", 404),
        ("GET", "/resp_1", 404),
        ("GET", "/resp_1?starting_after=x", 400),
        ("GET", "", 405),
    ],
)
async def test_paths_that_are_none(method: str, path: str, status: int) -> None:
    refused = await ResponsesRig().ask(method, PATH + path)
    assert refused.status == status
    assert answer(refused)["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": 1}', b'{"model": "m", "input": "x", "store": "yes"}'])
async def test_bodies_that_are_none(body: bytes) -> None:
    rig = ResponsesRig()
    refused = await rig.ask("POST", PATH, body)
    assert refused.status == 400
    assert rig.store.list().records[0].status == "rejected"


async def test_the_client_leaves_while_the_store_is_asked() -> None:
    rig = ResponsesRig(chat_reply("x"))
    made = answer(await rig.create({}))
    exchange = rig.send({"previous_response_id": made["id"]})
    exchange.disconnect()
    await rig.until(lambda: len(rig.store.list().records) == 2)
    assert {record.status for record in rig.store.list().records} == {"completed", "cancelled"}
    assert len(rig.client.sent) == 1


async def test_the_configuration_rules_the_store(tmp_path: Path) -> None:
    gateway = ResponsesRig().gateway
    url = f"sqlite:///{tmp_path}/strom.db"
    table = StoreTable(url, response_retention_s=7.0, max_background=1)
    responses = make_responses(gateway, Settings(store_url=url, store=table))
    await responses.close()
    assert (tmp_path / "strom.db").exists()
    off = f"sqlite:///{tmp_path}/off.db"
    await make_responses(gateway, Settings(store_url=off, store=StoreTable(off, responses=False))).close()
    assert not (tmp_path / "off.db").exists()


# --- input_tokens --------------------------------------------------------------------------------


async def test_input_tokens_is_an_estimate_where_nobody_counts() -> None:
    rig = ResponsesRig()
    counted = await rig.ask("POST", f"{PATH}/input_tokens", {"model": "m", "input": "how many are these?"})
    assert answer(counted)["object"] == "response.input_tokens"
    assert answer(counted)["input_tokens"] > 3
    assert counted.header_out(b"x-strom-usage-source") == b"estimated"


async def test_input_tokens_of_a_responses_upstream() -> None:
    rig = ResponsesRig(json_script({"object": "response.input_tokens", "input_tokens": 11}), behind=RESPONSES)
    body = {"model": "m", "input": "hi", "tools": None}
    counted = await rig.ask("POST", f"{PATH}/input_tokens", body)
    assert (answer(counted)["input_tokens"], counted.header_out(b"x-strom-usage-source")) == (11, b"reported")
    assert rig.upstream.request.target == f"{PATH}/input_tokens"
    assert rig.sent_body() == {"model": "m", "input": "hi"}


@pytest.mark.parametrize(("kind", "protocol"), [("anthropic", "anthropic"), ("llama-cpp", "openai-chat")])
async def test_input_tokens_where_messages_are_counted(kind: str, protocol: str) -> None:
    rig = ResponsesRig(json_script({"input_tokens": 42}), behind=provider("p", kind, protocol))
    counted = await rig.ask("POST", f"{PATH}/input_tokens", {"model": "m", "input": "hi", "stream": True})
    assert (answer(counted)["input_tokens"], counted.header_out(b"x-strom-usage-source")) == (42, b"reported")
    sent = rig.sent_body()
    assert sent["messages"][0]["role"] == "user"
    assert not {"max_tokens", "stream"} & set(sent)


async def test_input_tokens_of_a_stored_conversation() -> None:
    rig = ResponsesRig(chat_reply("a long answer " * 50))
    made = answer(await rig.create({}))
    alone = answer(await rig.ask("POST", f"{PATH}/input_tokens", {"model": "m", "input": "x"}))["input_tokens"]
    body = {"model": "m", "input": "x", "previous_response_id": made["id"]}
    assert answer(await rig.ask("POST", f"{PATH}/input_tokens", body))["input_tokens"] > alone + 100
    body["previous_response_id"] = "resp_gone"
    assert (await rig.ask("POST", f"{PATH}/input_tokens", body)).status == 400
