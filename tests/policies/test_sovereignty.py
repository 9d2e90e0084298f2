"""Policies fail closed: what an endpoint does not tell matches no pattern."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.access import PolicySettings
from strom.policies.sovereignty import all_allow, allows


class Site(msgspec.Struct, frozen=True):
    region: str | None = None
    sovereignty_class: str | None = None
    retention: str | None = None
    name: str = "p"


EU = PolicySettings("eu", regions=("eu-*",), sovereignty_classes=("eu-owned",), retentions=("none",))


@pytest.mark.parametrize(
    ("site", "allowed"),
    [
        (Site("eu-de", "eu-owned", "none"), True),
        (Site("us-east", "eu-owned", "none"), False),
        (Site("eu-de", "us-owned", "none"), False),
        (Site("eu-de", "eu-owned", "30d"), False),
        (Site(None, "eu-owned", "none"), False),
        (Site("eu-de", None, "none"), False),
        (Site(), False),
    ],
)
def test_every_part_must_match(site: Site, allowed: bool) -> None:
    assert allows(EU, site) is allowed


def test_a_policy_without_patterns_restricts_nothing() -> None:
    assert allows(PolicySettings("open"), Site())


NAMES = st.sampled_from(["eu-de", "eu-fr", "us-east", None])
PATTERNS = st.lists(st.sampled_from(["eu-*", "us-*", "eu-de"]), max_size=2).map(tuple)


@given(NAMES, PATTERNS, PATTERNS)
def test_a_second_policy_only_tightens(region: str | None, first: tuple[str, ...], second: tuple[str, ...]) -> None:
    policies = [PolicySettings("a", regions=first), PolicySettings("b", regions=second)]
    if all_allow(policies, Site(region)):
        assert allows(policies[0], Site(region))
        assert allows(policies[1], Site(region))
