"""From a name to endpoints: order of look-up, key scopes, policies, order and weight."""

import pytest

from strom.core.access import KeySettings, PolicySettings
from strom.core.errors import BadRequest, ModelNotFound, PermissionDenied
from strom.gateway.routing import Router
from strom.upstreams.settings import EndpointSettings, ModelSettings, ProviderSettings
from strom.upstreams.upstream import Upstream


def upstream(name: str, region: str | None = None) -> Upstream:
    return Upstream(ProviderSettings(name, "generic", "openai-chat", "http://127.0.0.1:1/v1", region=region))


def endpoint(name: str, provider: str, order: int = 1, weight: float = 1.0) -> EndpointSettings:
    return EndpointSettings(name, provider, "upstream-" + name, order, weight)


QWEN = ModelSettings("qwen", (endpoint("b", "far", 2), endpoint("a", "near", 1)), aliases=("claude-*", "gpt-4o"))
EU = PolicySettings("eu-only", regions=("eu-*",))


def router() -> Router:
    return Router([upstream("near", "eu-de"), upstream("far", "us-east")], [QWEN], [EU], draw=lambda: 0.5)


@pytest.mark.parametrize("name", ["qwen", "claude-sonnet-4-5", "gpt-4o"])
def test_names_and_aliases_lead_to_the_endpoints_in_order(name: str) -> None:
    plan = router().plan(name, None, None)
    assert [item.id for item in plan.endpoints] == ["a", "b"]
    assert plan.policy_id is None


@pytest.mark.parametrize("name", ["gpt-4", "qwen2", "near/x"])
def test_other_names_are_not_found_and_the_message_says_what_is(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        router().plan(name, None, None)
    assert name in caught.value.message
    assert "qwen" in caught.value.message


def test_no_name_at_all_is_the_caller_s_mistake() -> None:
    with pytest.raises(BadRequest):
        router().plan("", None, None)


def test_with_one_provider_any_name_passes_through() -> None:
    single = Router([upstream("only")], [], [])
    (found,) = single.plan("org/any:model", None, None).endpoints
    assert found.model == ""
    (found,) = single.plan("only/m", None, None).endpoints
    assert found.model == "m"


def test_with_several_providers_the_name_starts_with_one() -> None:
    several = Router([upstream("a"), upstream("b")], [], [])
    plan = several.plan("b/org/m", None, None)
    assert (plan.endpoints[0].upstream.name, plan.model_for(plan.endpoints[0])) == ("b", "org/m")
    for unknown in ("m", "c/m", "a/"):
        with pytest.raises(ModelNotFound):
            several.plan(unknown, None, None)


def test_a_policy_leaves_only_what_satisfies_it() -> None:
    plan = router().plan("qwen", None, "eu-only")
    assert [item.id for item in plan.endpoints] == ["a"]
    assert plan.policy_id == "eu-only"


def test_no_endpoint_left_is_refused_before_anything_is_sent() -> None:
    closed = Router([upstream("far", "us-east")], [ModelSettings("m", (endpoint("x", "far"),))], [EU])
    with pytest.raises(PermissionDenied, match="eu-only"):
        closed.plan("m", None, "eu-only")


def test_what_one_policy_allows_is_not_remembered_for_another() -> None:
    """Nor for the same name after a reload, nor for a key whose policy was changed."""
    model = ModelSettings("m", (endpoint("a", "near"),))
    us = PolicySettings("us-only", regions=("us-*",))
    places = [upstream("near", "eu-de"), upstream("far", "us-east")]
    first = Router(places, [model, ModelSettings("all", (endpoint("a", "near"), endpoint("b", "far")))], [EU, us])
    plan = first.plan("m", None, "eu-only")
    for _ in range(2):
        plan.check(plan.endpoints[0])
    with pytest.raises(PermissionDenied):
        first.plan("m", KeySettings("k", "h", policy="us-only"), "eu-only")
    here, there = first.plan("all", None, "eu-only"), first.plan("all", None, "us-only")
    for _ in range(2):
        here.check(here.endpoints[0])
        there.check(there.endpoints[0])
        for plan, other in ((here, there), (there, here)):
            with pytest.raises(PermissionDenied):
                plan.check(other.endpoints[0])
    after = Router(places, [model], [PolicySettings("eu-only", regions=("eu-fr",))])
    with pytest.raises(PermissionDenied):
        after.plan("m", None, "eu-only")


def test_a_request_cannot_loosen_the_policy_of_its_key() -> None:
    everywhere = PolicySettings("everywhere")
    both = Router([upstream("near", "eu-de"), upstream("far", "us-east")], [QWEN], [EU, everywhere])
    key = KeySettings("k", "00", policy="eu-only")
    assert [item.id for item in both.plan("qwen", key, "everywhere").endpoints] == ["a"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(BadRequest, match="nowhere"):
        router().plan("qwen", None, "nowhere")


def test_a_key_may_only_ask_for_its_models() -> None:
    key = KeySettings("k", "00", models=("llama-*",))
    with pytest.raises(PermissionDenied, match="qwen"):
        router().plan("qwen", key, None)


def test_equal_order_is_drawn_by_weight() -> None:
    settings = ModelSettings("m", (endpoint("light", "p", weight=1.0), endpoint("heavy", "p", weight=9.0)))
    draws = iter(range(1, 4000))
    mixed = Router([upstream("p")], [settings], [], draw=lambda: (next(draws) * 0.618033988749895) % 1)
    firsts = [mixed.plan("m", None, None).endpoints[0].id for _ in range(1000)]
    assert 850 < firsts.count("heavy") < 950


def test_plain_aliases_are_listed_patterns_are_not() -> None:
    assert [alias for alias, _ in router().plain_aliases()] == ["gpt-4o"]


def test_a_key_for_a_model_is_good_for_the_way_ollama_clients_say_it() -> None:
    """They add :latest of their own accord."""
    key = KeySettings("k", "00", models=("qwen",))
    assert router().plan("qwen:latest", key, None).endpoints
    with pytest.raises(PermissionDenied):
        router().plan("gpt-4o:latest", key, None)


def test_a_key_for_a_model_is_not_good_for_another_that_is_called_latest() -> None:
    other = ModelSettings("qwen:latest", (endpoint("c", "near"),))
    both = Router([upstream("near"), upstream("far")], [QWEN, other], [])
    with pytest.raises(PermissionDenied):
        both.plan("qwen:latest", KeySettings("k", "00", models=("qwen",)), None)
