"""Who is admitted: one known key in either header; foreign credentials beside it do not matter; two known ones do."""

import hashlib

import pytest

from strom.core.access import KeySettings
from strom.core.errors import AuthError
from strom.policies.auth import MISSING, TWO_KEYS, UNKNOWN, KeyRing, credentials


def key(name: str, secret: str) -> KeySettings:
    return KeySettings(name, hashlib.sha256(secret.encode()).hexdigest())


RING = KeyRing((key("one", "k-1"), key("two", "k-2")), required=True)
BEARER = (b"authorization", b"Bearer k-1")
API_KEY = (b"x-api-key", b"k-1")


@pytest.mark.parametrize(
    "headers",
    [
        [BEARER],
        [API_KEY],
        [BEARER, API_KEY],
        [(b"authorization", b"Bearer someone-elses"), API_KEY],
        [(b"authorization", b"bearer  k-1 ")],
        [(b"authorization", b"Basic abc"), API_KEY],
    ],
)
def test_one_known_key_admits(headers: list[tuple[bytes, bytes]]) -> None:
    found = RING.authenticate(headers)
    assert found is not None
    assert found.name == "one"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], MISSING),
        ([(b"x-api-key", b"")], MISSING),
        ([(b"authorization", b"Basic abc")], MISSING),
        ([(b"x-api-key", b"wrong")], UNKNOWN),
        ([BEARER, (b"x-api-key", b"k-2")], TWO_KEYS),
    ],
)
def test_everything_else_is_refused(headers: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(AuthError) as caught:
        RING.authenticate(headers)
    assert caught.value.message == message


def test_without_the_duty_a_stranger_is_nobody_and_a_known_caller_is_known() -> None:
    ring = KeyRing((key("one", "k-1"),), required=False)
    assert ring.authenticate([]) is None
    assert ring.authenticate([(b"x-api-key", b"whatever")]) is None
    found = ring.authenticate([API_KEY])
    assert found is not None
    assert found.name == "one"


def test_a_key_is_never_in_the_message() -> None:
    with pytest.raises(AuthError) as caught:
        RING.authenticate([(b"x-api-key", b"sk-secret-4711")])
    assert "4711" not in caught.value.message


def test_credentials_are_taken_without_scheme_and_space() -> None:
    assert credentials([(b"authorization", b"Bearer a"), (b"x-api-key", b" b "), (b"accept", b"c")]) == [b"a", b"b"]
