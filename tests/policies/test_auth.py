"""Who is admitted: one known key in either header; foreign credentials beside it do not matter; two known ones do."""

import hashlib

import pytest

from strom.core.access import KeySettings
from strom.core.errors import AuthError, PermissionDenied
from strom.policies.auth import (
    MISSING,
    TWO_KEYS,
    UNKNOWN,
    Credential,
    KeyRing,
    Table,
    check_route,
    credentials,
    tabulate,
)


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


def test_a_key_that_is_of_no_use_any_more_is_told_so_to_its_owner_alone() -> None:
    cases = {
        "api_key_expired": KeySettings("k", digest("s"), expires_at=99.0),
        "api_key_disabled": KeySettings("k", digest("s"), disabled=True),
    }
    for code, settings in cases.items():
        ring = KeyRing((settings,), required=True, wall=lambda: 99.0)
        with pytest.raises(AuthError) as caught:
            ring.authenticate([(b"x-api-key", b"s")])
        assert caught.value.code == code
        with pytest.raises(AuthError) as caught:
            ring.authenticate([(b"x-api-key", b"t")])
        assert caught.value.code == "invalid_api_key"
    assert KeyRing((cases["api_key_expired"],), required=True, wall=lambda: 98.9).authenticate([(b"x-api-key", b"s")])


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def test_digests_that_begin_alike_are_told_apart() -> None:
    real = bytes.fromhex(digest("s"))
    other = KeySettings("other", (real[:8] + bytes(24)).hex())
    ring = KeyRing((other, KeySettings("mine", digest("s"))), required=True)
    found = ring.authenticate([(b"x-api-key", b"s")])
    assert found is not None
    assert found.name == "mine"


def test_a_key_asks_the_routes_it_was_made_for() -> None:
    settings = KeySettings("k", digest("s"), routes=("/v1/embeddings", "/api/*"))
    check_route(settings, "/api/embed")
    check_route(KeySettings("k", digest("s")), "/anything")
    with pytest.raises(PermissionDenied):
        check_route(settings, "/v1/embeddings/more")


class Rotated:
    """A managed key whose old secret is replaced."""

    def __init__(self) -> None:
        new = key("one", "new")
        old = Credential(hashlib.sha256(b"old").digest(), new, replaced_at=1.0)
        self.table: Table = tabulate([Credential(bytes.fromhex(new.sha256), new), old])

    def note_use(self, key_id: str) -> None:
        pass


@pytest.mark.parametrize(("bearer", "api_key"), [(b"new", b"old"), (b"old", b"new")])
def test_a_client_that_sends_both_secrets_of_a_rotated_key_is_admitted(bearer: bytes, api_key: bytes) -> None:
    ring = KeyRing((), required=True, managed=Rotated())
    found = ring.authenticate([(b"authorization", b"Bearer " + bearer), (b"x-api-key", api_key)])
    assert found is not None
    assert found.name == "one"
    with pytest.raises(AuthError, match="replaced"):
        ring.authenticate([(b"x-api-key", b"old")])
