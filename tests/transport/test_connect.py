"""Reaching an origin: TLS with verification, proxies, and what the environment says about them."""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest
import trustme

from strom.transport.client import NativeClient
from strom.transport.connect import Proxies
from strom.transport.types import Origin, OutgoingRequest
from tests.patience import PATIENCE_S
from tests.transport.fakes import Told
from tests.transport.loops import on_both_loops
from tests.transport.servers import Answer, fixed, peer, tunnel

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
GET = OutgoingRequest("GET", "/v1/models", [])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "up.test").configure_cert(context)
    return context


@pytest.fixture
def trusted(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> object:
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        yield


async def send(client: NativeClient, origin: Origin, timeout_s: float = 5) -> Told:
    told = Told()
    client.send(origin, GET, told, connect_timeout_s=timeout_s)
    await told.ended()
    client.close()
    return told


# -- TLS


@pytest.mark.usefixtures("trusted")
@on_both_loops
async def test_tls_with_a_known_authority(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it:
        client = NativeClient(environ={})
        for _ in range(2):
            told = Told()
            client.send(it.origin("https", "localhost"), GET, told, connect_timeout_s=5)
            await told.ended()
            assert told.body == b"ok"
        assert it.connections == 1
        client.close()


@pytest.mark.usefixtures("trusted")
@on_both_loops
async def test_tls_for_another_name(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it:
        told = await send(NativeClient(environ={}), it.origin("https", "127.0.0.1"))
        assert told.failure.kind == "tls"
        assert not told.failure.sent
        assert it.requests == []


@on_both_loops
async def test_tls_with_an_unknown_authority(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it:
        assert (await send(NativeClient(environ={}), it.origin("https", "localhost"))).failure.kind == "tls"
        assert it.requests == []


@on_both_loops
async def test_tls_unverified_when_told_so(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it:
        origin = it.origin("https", "localhost", verify_tls=False)
        client = NativeClient(environ={})
        told = Told()
        client.send(origin, GET, told, connect_timeout_s=5)
        await told.ended()
        assert told.body == b"ok"
        # The connection that was not verified is not taken for the verified origin.
        assert (await send(client, it.origin("https", "localhost"))).failure.kind == "tls"


@on_both_loops
async def test_tls_to_a_server_without_it() -> None:
    async with peer(fixed(OK)) as it:
        told = await send(NativeClient(environ={}), it.origin("https", "localhost"), timeout_s=1)
        assert told.failure.kind in ("tls", "connect", "connect_timeout")


# -- proxies


@on_both_loops
async def test_http_through_a_proxy_has_an_absolute_target() -> None:
    async with peer(fixed(OK)) as proxy:
        client = NativeClient(environ={"http_proxy": f"http://us%40er:pass@127.0.0.1:{proxy.port}"})
        assert (await send(client, Origin("http", "up.test", 8000))).body == b"ok"
        first, _, rest = proxy.requests[0].partition(b"\r\n")
        assert first == b"GET http://up.test:8000/v1/models HTTP/1.1"
        assert b"host: up.test:8000\r\n" in rest
        assert b"proxy-authorization: Basic " + base64.b64encode(b"us@er:pass") in rest


@pytest.mark.usefixtures("trusted")
@on_both_loops
async def test_https_through_a_proxy_is_a_tunnel(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it, peer(tunnel) as proxy:
        client = NativeClient(environ={"HTTPS_PROXY": f"u:p@127.0.0.1:{proxy.port}"})
        origin = it.origin("https", "up.test")
        for _ in range(2):
            told = Told()
            client.send(origin, GET, told, connect_timeout_s=5)
            await told.ended()
            assert told.body == b"ok"
        assert len(proxy.requests) == 1
        assert proxy.requests[0].startswith(b"CONNECT up.test:%d HTTP/1.1\r\nhost: up.test:%d\r\n" % (it.port, it.port))
        assert b"proxy-authorization: Basic " in proxy.requests[0]
        assert b"authorization" not in it.requests[0]
        client.close()


@pytest.mark.usefixtures("trusted")
@on_both_loops
async def test_certificates_are_verified_through_a_tunnel(tls: ssl.SSLContext) -> None:
    async with peer(fixed(OK), tls=tls) as it, peer(tunnel) as proxy:
        client = NativeClient(environ={"all_proxy": f"http://127.0.0.1:{proxy.port}"})
        assert (await send(client, it.origin("https", "other.test"))).failure.kind == "tls"


async def close(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(
    "answer",
    [
        fixed(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"),
        fixed(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"),
        fixed(b"SSH-2.0\r\n\r\n"),
        fixed(b"\r\n\r\n"),
        fixed(b"HTTP/1.1 200 OK\r\n\r\nearly bytes"),
        fixed(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000),
        close,
    ],
)
@on_both_loops
async def test_a_refusing_proxy(answer: Answer) -> None:
    async with peer(answer) as proxy:
        client = NativeClient(environ={"https_proxy": f"http://127.0.0.1:{proxy.port}"})
        told = await send(client, Origin("https", "up.test", 443))
        assert told.failure.kind == "proxy"


@on_both_loops
async def test_a_silent_proxy_times_out() -> None:
    async def silent(_request: bytes, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(silent) as proxy:
        client = NativeClient(environ={"https_proxy": f"http://127.0.0.1:{proxy.port}"})
        told = await send(client, Origin("https", "up.test", 443), timeout_s=0.1)
        assert told.failure.kind == "connect_timeout"
        await asyncio.wait_for(proxy.ended.wait(), PATIENCE_S)


@pytest.mark.parametrize("scheme", ["http", "https"])
@on_both_loops
async def test_a_proxy_out_of_reach(scheme: str, free_port: int) -> None:
    client = NativeClient(environ={"ALL_PROXY": f"http://127.0.0.1:{free_port}"})
    told = await send(client, Origin("https" if scheme == "https" else "http", "up.test", 443))
    assert told.failure.kind == "proxy"


@pytest.mark.parametrize("url", ["socks5://127.0.0.1:1080", "https://127.0.0.1:1", "http://:1", "http://h:x"])
@on_both_loops
async def test_proxies_that_are_not_supported(url: str) -> None:
    told = await send(NativeClient(environ={"http_proxy": url}), Origin("http", "up.test", 80))
    assert told.failure.kind == "proxy"


# -- the environment


def chosen(environ: dict[str, str], scheme: str = "http", host: str = "up.test", port: int = 80) -> str | None:
    proxy = Proxies(environ).choose(Origin("https" if scheme == "https" else "http", host, port))
    return None if proxy is None else f"{proxy.host}:{proxy.port}"


def test_which_variable_counts() -> None:
    assert chosen({}) is None
    assert chosen({"http_proxy": "http://a:1", "HTTP_PROXY": "http://b:2"}) == "a:1"
    assert chosen({"HTTP_PROXY": "http://b:2"}) == "b:2"
    assert chosen({"HTTP_PROXY": "http://b:2"}, "https") is None
    assert chosen({"ALL_PROXY": "c"}, "https") == "c:80"
    assert chosen({"ALL_PROXY": "c", "HTTPS_PROXY": "d:4"}, "https") == "d:4"
    assert chosen({"HTTP_PROXY": "  "}) is None


@pytest.mark.parametrize(
    ("entry", "host", "exempt"),
    [
        ("*", "up.test", True),
        ("up.test", "up.test", True),
        ("UP.test", "up.test.", True),
        (".test", "up.test", True),
        ("*.test", "up.test", True),
        ("test", "up.test", True),
        ("p.test", "up.test", False),
        ("up.test:80", "up.test", True),
        ("up.test:81", "up.test", False),
        ("other.test, up.test", "up.test", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.0/8", "127.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("2001:db8::1", "2001:db8::1", True),
        ("[2001:db8::1]:80", "2001:db8::1", True),
        ("[2001:db8::1]:81", "2001:db8::1", False),
        ("", "up.test", False),
    ],
)
def test_no_proxy(entry: str, host: str, *, exempt: bool) -> None:
    assert (chosen({"http_proxy": "a:1", "NO_PROXY": entry}, host=host) is None) is exempt


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "LOCALHOST."])
def test_loopback_is_never_asked_through_a_proxy(host: str) -> None:
    assert chosen({"http_proxy": "a:1", "ALL_PROXY": "b:2"}, host=host) is None
