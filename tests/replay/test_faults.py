"""The language of faults: every form, and an error that says what is allowed for every mistake."""

from __future__ import annotations

import pytest

from strom.replay.faults import FAULTS, BadFault, Fault, FaultSpec, Place, parse_faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut@120", Fault("cut", Place(120), "close")),
        ("cut@5t=reset", Fault("cut", Place(5, in_tokens=True), "reset")),
        ("cut@0=half", Fault("cut", Place(0), "half")),
        ("stall@3t", Fault("stall", Place(3, in_tokens=True), -1.0)),
        ("stall@3=2.5", Fault("stall", Place(3), 2.5)),
        ("trickle", Fault("trickle", Place(0), 0.0)),
        ("trickle@9=5", Fault("trickle", Place(9), 5.0)),
        ("garbage@7=3", Fault("garbage", Place(7), 3)),
        ("giant@7", Fault("giant", Place(7), 16_777_216)),
        ("no-terminator", Fault("no-terminator")),
        ("double-terminator", Fault("double-terminator")),
        ("gzip", Fault("gzip")),
        ("status=529", Fault("status", None, 529)),
        ("html", Fault("html", None, 502)),
        ("slow-head=0.5", Fault("slow-head", None, 0.5)),
        ("tls", Fault("tls")),
    ],
)
def test_every_form(text: str, fault: Fault) -> None:
    assert parse_faults(f"  {text} ; ") == FaultSpec((fault,))


def test_every_name_of_the_table_is_tested_above() -> None:
    forms = next(mark for mark in test_every_form.pytestmark if mark.name == "parametrize").args[1]  # type: ignore[attr-defined]
    assert {fault.name for _, fault in forms} == FAULTS.keys() - {"every", "retry-after"}


def test_several_in_one_or_in_many() -> None:
    joined = parse_faults("status=429; retry-after=3; every=2")
    assert joined == parse_faults(["status=429", "retry-after=3; every=2"])
    assert (joined.value("status"), joined.value("retry-after"), joined.every) == (429, 3.0, 2)
    assert str(joined) == "status=429; retry-after=3.0"
    assert str(parse_faults("cut@5t")) == "cut@5t=close"


def test_every_strikes_each_kth_request() -> None:
    spec = parse_faults("gzip; every=3")
    assert [bool(spec.for_request(number)) for number in range(1, 8)] == [False, False, True, False, False, True, False]
    assert parse_faults("every=2").value("status") == 503, "alone it is a failure"


def test_nothing_is_no_fault() -> None:
    assert not parse_faults("")
    assert not parse_faults([" ; "])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("frob", "no such fault; there are cut, stall"),
        ("CUT@3", "no such fault"),
        ("cut", "say where: cut@120 (bytes) or cut@5t (tokens)"),
        ("cut@", "the place is a number"),
        ("cut@-1", "the place is a number"),
        ("cut@5x", "the place is a number"),
        ("cut@²", "the place is a number"),
        ("cut@5=slowly", "the value is close, reset or half"),
        ("stall@5=-1", "the value is seconds"),
        ("stall@5=nan", "the value is seconds"),
        ("garbage@5=0", "the value is a number of bytes"),
        ("gzip=9", "it takes no value"),
        ("gzip@9", "takes no place"),
        ("status", "it needs a value: a status, 400 to 599"),
        ("status=200", "the value is a status, 400 to 599"),
        ("slow-head", "it needs a value: seconds"),
        ("every=0", "the value is a count"),
        ("cut@1; cut@2", "'cut' stands there twice"),
        ("retry-after=1", "goes with a status"),
        ("no-terminator; double-terminator", "exclude each other"),
        ("status=500; html", "exclude each other"),
    ],
)
def test_mistakes_are_explained(text: str, says: str) -> None:
    with pytest.raises(BadFault) as caught:
        parse_faults(text)
    assert says in caught.value.message
