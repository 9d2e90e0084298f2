"""What a call costs: exact, by the day's price, each kind of token by its own price where there is one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.record import Cost, RecordUsage
from strom.core.usage import MOST_TOKENS, Usage
from strom.gateway.accounts import cost, record_usage
from strom.upstreams.settings import Price
from tests.gateway.rig import DONE, FINISH, JSON, PATHS, SSE, USAGE, Rig, chat_frame

PLAIN = Price(0.2, 0.6, "EUR")
APART = Price(3.0, 15.0, "USD", cached_input=0.3, cache_write=3.75, reasoning=12.0)


def noon(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12, tzinfo=UTC).timestamp()


def test_input_and_output() -> None:
    assert cost(RecordUsage(10, 20), PLAIN) == Cost(0.000014, "EUR", 0.000002, 0.000012)


def test_what_is_priced_apart() -> None:
    usage = record_usage(Usage(1000, 500, cached_tokens=600, reasoning_tokens=100, cache_write_tokens=300))
    found = cost(usage, APART)
    assert found is not None
    assert Decimal(repr(found.input_amount)) * 1_000_000 == 100 * 3 + 600 * Decimal("0.3") + 300 * Decimal("3.75")
    assert Decimal(repr(found.output_amount)) * 1_000_000 == 400 * 15 + 100 * 12


def test_what_is_not_priced_apart_costs_as_the_whole() -> None:
    usage = record_usage(Usage(1000, 500, cached_tokens=600, reasoning_tokens=100, cache_write_tokens=300))
    assert cost(usage, PLAIN) == cost(RecordUsage(1000, 500), PLAIN)


@pytest.mark.parametrize("usage", [RecordUsage(), RecordUsage(10, None), RecordUsage(None, 10)])
def test_what_is_unknown_stays_unknown(usage: RecordUsage) -> None:
    assert cost(usage, PLAIN) is None
    assert cost(RecordUsage(1, 1), None) is None


@pytest.mark.parametrize(
    ("at", "output"),
    [
        (noon(2025, 12, 31), None),
        (noon(2026, 1, 1), 1.0),
        (noon(2026, 6, 30), 1.0),
        (noon(2026, 7, 1), 2.0),
        (noon(2030, 1, 1), 2.0),
    ],
)
def test_prices_hold_from_their_first_to_their_last_day(at: float, output: float | None) -> None:
    prices = (
        Price(0, 1, "EUR", valid_from=date(2026, 1, 1), valid_until=date(2026, 6, 30)),
        Price(0, 2, "EUR", valid_from=date(2026, 7, 1)),
    )
    found = cost(RecordUsage(0, 1_000_000), prices, at)
    assert (found.output_amount if found else None) == output


def test_a_single_price_may_have_an_end() -> None:
    price = Price(1, 1, "EUR", valid_until=date(2026, 1, 1))
    assert cost(RecordUsage(1, 1), price, noon(2026, 1, 1)) is not None
    assert cost(RecordUsage(1, 1), price, noon(2026, 1, 2)) is None


micro = st.integers(0, 200_000_000).map(lambda millionths: millionths / 1_000_000)


@given(st.integers(0, 2_000_000), st.integers(0, 200_000), micro, micro)
def test_amounts_are_exact(given_tokens: int, produced: int, input_price: float, output_price: float) -> None:
    found = cost(RecordUsage(given_tokens, produced), Price(input_price, output_price, "EUR"))
    assert found is not None
    exact = given_tokens * Decimal(repr(input_price)) + produced * Decimal(repr(output_price))
    assert Decimal(repr(found.amount)) * 1_000_000 == exact


PRICES = st.floats(0, 1e4) | st.sampled_from([0.1 + 1e-9, 1 / 3, 5e-324, 1e22, 0.15, 2.5e-7])
COUNTS = st.integers(0, 10**6) | st.sampled_from([0, 1, MOST_TOKENS])
PARTS = st.none() | COUNTS


@given(st.tuples(*[PRICES] * 5), st.tuples(COUNTS, COUNTS, PARTS, PARTS, PARTS))
def test_no_token_costs_twice_whatever_is_told_of_the_parts(
    prices: tuple[float, ...], told: tuple[int, int, int | None, int | None, int | None]
) -> None:
    """Beside fractions: each part is at most what is left of its whole."""
    given_tokens, produced, in_cache, into_cache, thought = told
    found = cost(record_usage(Usage(*told)), Price(prices[0], prices[1], "EUR", prices[2], prices[3], prices[4]))
    cached = min(in_cache or 0, given_tokens)
    written = min(into_cache or 0, given_tokens - cached)
    reasoning = min(thought or 0, produced)
    per_token = [Fraction(repr(price)) / 1_000_000 for price in prices]
    counts = (given_tokens - cached - written, produced - reasoning, cached, written, reasoning)
    each = [count * price for count, price in zip(counts, per_token, strict=True)]
    paid_in, paid_out = (round(paid, 12) for paid in (each[0] + each[2] + each[3], each[1] + each[4]))
    assert found == Cost(float(paid_in + paid_out), "EUR", float(paid_in), float(paid_out))


WHOLE = {
    "openai-chat": '{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":'
    '"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%s,"completion_tokens":%s}}',
    "anthropic": '{"id":"c","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],'
    '"stop_reason":"end_turn","usage":{"input_tokens":%s,"output_tokens":%s}}',
    "openai-responses": '{"id":"r","object":"response","created_at":1,"model":"m","status":"completed","output":[{"type":'
    '"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi"}]}],"usage":'
    '{"input_tokens":%s,"output_tokens":%s}}',
    "ollama": '{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":"hi"},"done":true,'
    '"done_reason":"stop","prompt_eval_count":%s,"eval_count":%s}',
}  # fmt: skip


@pytest.mark.parametrize("told", ["-5", "9223372036854775808", f"1{'0' * 330}"])
@pytest.mark.parametrize("behind", sorted(WHOLE))
@pytest.mark.parametrize("front", sorted(PATHS))
def test_counts_that_are_none_are_neither_charged_nor_in_the_way_of_an_end(front: str, behind: str, told: str) -> None:
    rig = Rig(behind)
    rig.call(front, stream=False)
    rig.upstream().response(200, JSON)
    rig.upstream().end((WHOLE[behind] % (told, told)).encode())
    _counts_are_sane(rig)


@pytest.mark.parametrize("told", [b"-5", b"9223372036854775808", b"1" + b"0" * 330])
@pytest.mark.parametrize("front", sorted(PATHS))
def test_such_counts_in_a_stream(front: str, told: bytes) -> None:
    rig = Rig()
    rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().end(chat_frame({"content": "hi"}), FINISH, USAGE.replace(b":9,", b":" + told + b","), DONE)
    _counts_are_sane(rig)


def _counts_are_sane(rig: Rig) -> None:
    record = rig.record
    assert record.status == "completed"
    assert 0 <= (record.usage.input_tokens or 0) < 1000
    assert 0 <= (record.usage.output_tokens or 0) < 1000
    assert record.cost_estimate is None or 0 <= record.cost_estimate.amount < 0.01
    assert rig.board.ends == [("e1", None)]
    assert rig.clock.armed == 0
