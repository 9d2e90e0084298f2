"""Ollama's small endpoints over any upstream."""

from tests.server.rig import ServerRig, answer, json_script, provider

TAGS = {"models": [{"name": "llama:8b", "model": "llama:8b", "modified_at": "2026-01-01T00:00:00Z", "size": 7,
                    "digest": "abc", "details": {"family": "llama", "families": ["llama"]}}]}  # fmt: skip
OLLAMA = (provider("o", "ollama", "ollama"),)


async def test_tags_of_other_backends_have_the_fields_that_clients_need() -> None:
    rig = ServerRig(json_script({"data": [{"id": "m"}]}))
    (tag,) = answer(await rig.ask("GET", "/api/tags"))["models"]
    assert (tag["name"], tag["model"]) == ("m", "m")
    assert tag["modified_at"]
    assert tag["details"]["family"] == ""


async def test_tags_of_an_ollama_backend_are_its_own() -> None:
    rig = ServerRig(json_script(TAGS), json_script(TAGS), providers=OLLAMA)
    (tag,) = answer(await rig.ask("GET", "/api/tags"))["models"]
    assert (tag["digest"], tag["size"], tag["details"]["family"]) == ("abc", 7, "llama")


async def test_ps_lists_what_an_ollama_backend_has_loaded() -> None:
    rig = ServerRig(json_script(TAGS), json_script({"models": []}), providers=OLLAMA)
    assert answer(await rig.ask("GET", "/api/ps"))["models"] == []


async def test_show() -> None:
    rig = ServerRig(json_script({"data": [{"id": "m"}]}))
    shown = answer(await rig.ask("POST", "/api/show", {"model": "m:latest"}))
    assert shown["model_info"]
    assert "completion" in shown["capabilities"]
    missing = await rig.ask("POST", "/api/show", {"model": "none"})
    assert (missing.status, answer(missing)) == (404, {"error": "model 'none' not found"})
    assert (await rig.ask("POST", "/api/show", {})).status == 400


async def test_show_of_an_ollama_backend_is_its_own() -> None:
    own = {"model_info": {"general.architecture": "llama"}, "capabilities": ["completion"], "template": "x"}
    rig = ServerRig(json_script(own), providers=OLLAMA)
    assert answer(await rig.ask("POST", "/api/show", {"name": "llama:8b"})) == own


async def test_version() -> None:
    assert answer(await ServerRig().ask("GET", "/api/version"))["version"]


async def test_loading_a_model_needs_no_backend() -> None:
    rig = ServerRig()
    for path, body in (("/api/chat", {"model": "m"}), ("/api/generate", {"model": "m"})):
        loaded = answer(await rig.ask("POST", path, body))
        assert (loaded["done"], loaded["done_reason"]) == (True, "load")
    unloaded = answer(await rig.ask("POST", "/api/generate", {"model": "m", "keep_alive": 0}))
    assert unloaded["done_reason"] == "unload"
    assert rig.client.sent == []
    assert {record.status for record in rig.store.list().records} == {"completed"}
