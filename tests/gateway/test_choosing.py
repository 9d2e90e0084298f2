"""In which order endpoints are tried: strategy, affinity, size, health."""

from __future__ import annotations

from collections import Counter

import pytest

from strom.core.errors import ProviderAuthError, RateLimited, Unreachable
from strom.core.messages import Json, Message, Request, TextPart
from strom.gateway.affinity import Homes, conversation_key
from strom.gateway.board import Board
from strom.gateway.choosing import Chooser, Group, make_group
from strom.gateway.destination import ANYWHERE, Destination
from strom.gateway.health import NoBoard
from strom.gateway.plan import Endpoint
from tests.gateway.places import NAMES, place
from tests.gateway.rig import FakeClock

A, B, C = place("a"), place("b"), place("c")


def board(clock: FakeClock | None = None) -> Board:
    return Board((clock or FakeClock()).time, draw=lambda: 0.5)


def names(endpoints: tuple[Endpoint, ...] | list[Endpoint]) -> str:
    return "".join(endpoint.id for endpoint in endpoints)


def arrange(health: Board, *groups: Group, to: Destination = ANYWHERE) -> str:
    return names(Chooser(health, lambda: 0.5).arrange(groups, to, "key"))


def ask(text: str = "hi", system: str = "Be brief.", **more: object) -> Request:
    turns = (Message("system", (TextPart(system),)), Message("user", (TextPart(text),)))
    return Request("openai-chat", "m", turns, **more)  # type: ignore[arg-type]


# -- strategy --


def test_least_busy_goes_where_least_is_under_way_for_its_weight() -> None:
    health = board()
    heavy = place("b", weight=4)
    for endpoint in (A, heavy, heavy, heavy):
        health.began(endpoint)
    assert arrange(health, Group((A, heavy, C), "least-busy")) == "cba"


def test_fastest_goes_where_the_first_token_comes_soonest() -> None:
    health = board()
    for endpoint, ms in ((A, 300), (B, 20), (C, 100)):
        health.began(endpoint)
        health.ended(endpoint, None, ms)
    assert arrange(health, Group((A, B, C), "fastest")) == "bca"


def test_fastest_does_not_send_everything_to_one() -> None:
    health = board()
    for endpoint, ms in ((A, 20), (B, 30)):
        health.began(endpoint)
        health.ended(endpoint, None, ms)
    health.began(A)
    assert arrange(health, Group((A, B), "fastest")) == "ba"


def test_fastest_tries_what_it_has_not_heard_of_for_long() -> None:
    clock = FakeClock()
    health = board(clock)
    health.began(A)
    health.ended(A, None, 400)
    clock.advance(600)
    health.began(B)
    health.ended(B, None, 50)
    assert arrange(health, Group((A, B), "fastest")) == "ab"


def test_order_comes_before_strategy_and_open_circuits_come_last() -> None:
    clock = FakeClock()
    health = board(clock)
    groups = (Group((A,), "least-busy"), Group((B, C), "least-busy"))
    health.began(A)
    assert arrange(health, *groups)[0] == "a"
    health.ended(A, ProviderAuthError("x"), None)
    assert arrange(health, *groups)[-1] == "a"
    clock.advance(5)
    assert arrange(health, *groups)[0] == "a", "the trial goes where calls went"
    health.began(A)
    assert arrange(health, *groups)[-1] == "a", "one trial at a time"


def test_what_asked_to_be_left_alone_comes_last_until_then() -> None:
    clock = FakeClock()
    health = board(clock)
    health.began(A)
    health.ended(A, RateLimited("x", retry_after_s=7), None)
    assert arrange(health, Group((A,)), Group((B,))) == "ba"
    clock.advance(7)
    assert arrange(health, Group((A,)), Group((B,))) == "ab"


def test_with_nothing_healthy_the_one_that_is_ready_first_is_tried_first() -> None:
    clock = FakeClock()
    health = board(clock)
    for endpoint in (B, A):
        for _ in range(5):
            health.began(endpoint)
            health.ended(endpoint, Unreachable("x"), None)
        clock.advance(1)
    assert arrange(health, Group((A,)), Group((B,))) == "ba"


# -- size --


def test_endpoints_that_are_too_small_are_left_out() -> None:
    small, large = place("a", context_window=100), place("b", context_window=1000)
    groups = (Group((small,)), Group((large,)), Group((C,)))
    assert arrange(board(), *groups, to=Destination(tokens=100)) == "abc"
    assert arrange(board(), *groups, to=Destination(tokens=101)) == "bc"
    assert arrange(board(), *groups, to=Destination(tokens=5000)) == "c", "of C nothing is known"
    assert arrange(board(), *groups[:2], to=Destination(tokens=5000)) == "ab", "the estimate may be wrong"


# -- affinity --


def test_a_conversation_stays_as_it_grows() -> None:
    first = ask("Tell me of rivers.")
    later = Request(
        "openai-chat", "m", (*first.messages, Message("assistant", (TextPart("The Rhine"),)), first.messages[1])
    )
    assert conversation_key(first, "k") == conversation_key(later, "k")
    assert conversation_key(first, "k") != conversation_key(first, "other")
    assert conversation_key(first, "k") != conversation_key(ask("Tell me of lakes."), "k")


def test_what_the_client_calls_it_counts_first() -> None:
    named = [ask(text, extras=(("prompt_cache_key", Json('"c1"')),)) for text in ("one", "two")]
    assert len({conversation_key(each, "k") for each in named}) == 1
    users = [
        Request("anthropic", "m", (Message("user", (TextPart(text),)),), user='{"session_id":"s"}')
        for text in ("a", "b")
    ]
    assert len({conversation_key(each, "k") for each in users}) == 1
    assert len({conversation_key(ask(text), "k", b"s-1") for text in ("a", "b")}) == 1
    broken = ask(extras=(("prompt_cache_key", Json("7")),))
    assert conversation_key(broken, "k") == conversation_key(ask(), "k")


def test_a_system_block_that_varies_is_passed_over() -> None:
    def request(version: str) -> Request:
        system = Message("system", (TextPart(f"x-anthropic-billing-header: cc={version};"), TextPart("You code.")))
        return Request("anthropic", "m", (system, Message("user", (TextPart("hi"),))))

    assert conversation_key(request("1"), "k") == conversation_key(request("2"), "k")


def test_text_that_is_no_text_is_no_obstacle() -> None:
    assert conversation_key(ask("\ud800"), "k", b"") != 0


def test_every_endpoint_gets_its_share_and_only_its_own_conversations_move() -> None:
    endpoints = [place(name, weight=2 if name == "a" else 1) for name in NAMES[:4]]
    homes, fewer = Homes(endpoints), Homes(endpoints[:3])
    before = {
        key: homes.order(key, NoBoard())[0].id for key in (conversation_key(ask(str(at)), "k") for at in range(4000))
    }
    shares = Counter(before.values())
    assert 0.35 < shares["a"] / len(before) < 0.45
    assert all(0.15 < shares[name] / len(before) < 0.25 for name in "bcd")
    after = {key: fewer.order(key, NoBoard())[0].id for key in before}
    assert all(after[key] == before[key] for key in before if before[key] != "d")


def test_the_choice_is_written_in_stone() -> None:
    """Other processes, and later versions, choose the same one."""
    key = conversation_key(ask("Tell me of rivers."), "k")
    assert key == STONE
    assert names(Homes([A, B, C]).order(key, NoBoard())) == STONE_ORDER


def test_a_full_favourite_gives_way_to_the_next() -> None:
    health = board()
    key = conversation_key(ask(), "k")
    favourite, second, third = Homes([A, B, C]).order(key, health)
    for _ in range(4):
        health.began(favourite)
    assert Homes([A, B, C]).order(key, health)[0] is second
    for endpoint in (second, third):
        for _ in range(4):
            health.began(endpoint)
    assert Homes([A, B, C]).order(key, health)[0] is favourite


@pytest.mark.parametrize("affinity", ["conversation", "off"])
def test_affinity_decides_where_it_is_wanted(affinity: str) -> None:
    group = make_group((A, B, C), "weighted", affinity)  # type: ignore[arg-type]
    firsts = {arrange(board(), group, to=Destination(request=ask(str(at))))[0] for at in range(40)}
    assert firsts == (set("abc") if affinity == "conversation" else {"a"})


STONE = 6635134907599767920
STONE_ORDER = "abc"
