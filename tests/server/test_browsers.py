"""Pages that ask: none may read an answer unless it is told so, none of another site may ask where no key is asked for."""

from __future__ import annotations

import pytest

from strom.core.errors import PermissionDenied
from strom.server.browsers import BrowserRules, PageExchange
from strom.transport.memory import MemoryExchange
from strom.transport.types import Exchange

APP = "https://app.example"


def rules(*origins: str, open_to_all: bool = True, hosts: list[str] | None = None) -> BrowserRules:
    return BrowserRules(origins, open_to_all=open_to_all, hosts=["127.0.0.1"] if hosts is None else hosts)


def asked(*headers: tuple[bytes, bytes], host: bytes = b"127.0.0.1:8080", method: str = "POST") -> MemoryExchange:
    return MemoryExchange(method, "/v1/chat/completions", headers=[(b"host", host), *headers])


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1:8080",
        b"localhost",
        b"LOCALHOST:8080",
        b"a.localhost:1",
        b"[::1]:8080",
        b"192.168.1.5:8080",
        b"localhost.",
        b"strom",
        b"host.docker.internal:8080",
        b"mini.local",
    ],
)
def test_names_that_are_of_this_machine(host: bytes) -> None:
    exchange = asked(host=host)
    assert rules().admit(exchange) is exchange


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:8080",
        b"localhost.evil.example",
        b"127.0.0.1.nip.io",
        b"",
        b":8080",
        b"[",
        b"evil.localx",
    ],
)
def test_names_that_point_here_and_should_not(host: bytes) -> None:
    """DNS rebinding: a page's own name is made to point to loopback."""
    with pytest.raises(PermissionDenied, match="allowed_hosts"):
        rules().admit(asked(host=host))


def test_a_name_that_is_configured() -> None:
    exchange = asked(host=b"llm.example:443")
    assert rules(hosts=["LLM.example"]).admit(exchange) is exchange
    anywhere = BrowserRules((), open_to_all=True, hosts=None)
    assert anywhere.admit(exchange) is exchange


@pytest.mark.parametrize(
    "origin",
    [
        b"https://evil.example",
        b"http://127.0.0.1.nip.io",
        b"null",
        b"",
        b"chrome-extension://x",
        b"http://localhost.evil.example",
    ],
)
def test_pages_of_other_sites_are_refused(origin: bytes) -> None:
    with pytest.raises(PermissionDenied, match="allowed_origins"):
        rules().admit(asked((b"origin", origin)))
    with pytest.raises(PermissionDenied):
        rules().admit(asked((b"origin", b"http://localhost:1"), (b"origin", origin)))


@pytest.mark.parametrize("origin", [b"http://127.0.0.1:8080", b"http://localhost:3000", b"https://[::1]"])
def test_pages_of_this_machine_are_no_other_site_and_are_told_nothing(origin: bytes) -> None:
    exchange = asked((b"origin", origin))
    assert rules().admit(exchange) is exchange


def test_where_a_key_is_asked_for_it_decides() -> None:
    exchange = asked((b"origin", b"https://evil.example"), host=b"llm.example")
    keyed = BrowserRules((), open_to_all=False, hosts=None)
    assert keyed.admit(exchange) is exchange


def answered(exchange: Exchange | None) -> None:
    assert isinstance(exchange, PageExchange)
    exchange.start(200, [(b"x", b"y")])
    exchange.finish()


def test_an_allowed_page_may_read_the_answer() -> None:
    exchange = asked((b"origin", APP.encode()))
    answered(rules(APP).admit(exchange))
    assert exchange.header_out(b"access-control-allow-origin") == APP.encode()
    assert exchange.header_out(b"vary") == b"origin"
    assert exchange.header_out(b"x") == b"y"
    with pytest.raises(PermissionDenied):
        rules(APP).admit(asked((b"origin", b"https://app.example.evil")))


def test_every_page_when_every_page_is_allowed() -> None:
    exchange = asked((b"origin", b"https://any.example"))
    answered(rules("*").admit(exchange))
    assert exchange.header_out(b"access-control-allow-origin") == b"https://any.example"
    assert exchange.header_out(b"access-control-allow-credentials") is None


def preflight(*headers: tuple[bytes, bytes]) -> MemoryExchange:
    wanted = (b"access-control-request-method", b"POST")
    return asked((b"origin", APP.encode()), wanted, *headers, method="OPTIONS")


def test_a_preflight_is_answered_for_allowed_pages() -> None:
    exchange = preflight(
        (b"access-control-request-headers", b"authorization, content-type"),
        (b"access-control-request-private-network", b"true"),
    )
    assert rules(APP).admit(exchange) is None
    assert exchange.status == 204
    assert exchange.header_out(b"access-control-allow-headers") == b"authorization, content-type"
    assert b"POST" in (exchange.header_out(b"access-control-allow-methods") or b"")
    assert exchange.header_out(b"access-control-allow-private-network") == b"true"


def test_a_preflight_echoes_nothing_that_is_no_list_of_names() -> None:
    exchange = preflight((b"access-control-request-headers", b"a;b\x80"))
    assert rules(APP).admit(exchange) is None
    assert exchange.header_out(b"access-control-allow-headers") is None


def test_the_exchange_of_a_page_is_the_exchange() -> None:
    exchange = asked((b"origin", APP.encode()))
    page = rules(APP).admit(exchange)
    assert isinstance(page, PageExchange)
    left: list[str] = []
    page.on_disconnect = lambda: left.append("left")
    page.on_pause = page.on_resume = None
    assert (page.on_pause, page.on_resume) == (None, None)
    page.head, page.body, page.refusal = exchange.head, b"new", None
    assert (page.head, page.body, page.refusal) == (exchange.head, b"new", None)
    page.start(200, [])
    page.write(b"abc")
    assert (page.bytes_out, page.closed, page.paused) == (3, False, False)
    assert page.on_disconnect is exchange.on_disconnect
    page.abort()
    assert exchange.state == "aborted"
