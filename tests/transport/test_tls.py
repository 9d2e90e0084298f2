"""TLS of the listener: what it offers, and how its certificate is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from strom.transport import Listener
from strom.transport.tls import ServerTls, TlsFault, TlsFiles
from tests.patience import PATIENCE_S
from tests.transport.fakes import GET
from tests.transport.loops import on_both_loops


class Pair:
    """A certificate and its key in files, and who trusts it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.files = TlsFiles(str(folder / "cert.pem"), str(folder / "key.pem"))
        self.issue()

    def issue(self, *names: str) -> None:
        issued = self.authority.issue_cert("localhost", *names)
        Path(self.files.cert_file).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        Path(self.files.key_file).write_bytes(issued.private_key_pem.bytes())

    def replace_key(self, key: bytes) -> None:
        Path(self.files.key_file).write_bytes(key)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@contextlib.asynccontextmanager
async def listening(tls: ServerTls) -> AsyncIterator[int]:
    listener = Listener(lambda exchange: exchange.respond(200, [], b"ok"))
    await listener.start("127.0.0.1", 0, ssl_context=tls.context)
    try:
        yield listener.port
    finally:
        await listener.close()


async def dial(port: int, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")


def names(writer: asyncio.StreamWriter) -> set[str]:
    found = writer.get_extra_info("peercert")["subjectAltName"]
    return {name for _, name in found}


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(GET)
    assert (await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE_S)).startswith(b"HTTP/1.1 200")


@on_both_loops
async def test_only_http_1_1_over_a_present_day_tls(pair: Pair) -> None:
    async with listening(ServerTls(pair.files)) as port:
        context = pair.client()
        context.set_alpn_protocols(["h2", "http/1.1"])
        reader, writer = await dial(port, context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        await ask(reader, writer)
        writer.close()
        old = pair.client()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await dial(port, old)


@on_both_loops
async def test_a_new_certificate_is_for_new_connections(pair: Pair) -> None:
    tls = ServerTls(pair.files)
    async with listening(tls) as port:
        old_reader, old_writer = await dial(port, pair.client())
        assert names(old_writer) == {"localhost"}
        pair.issue("new.test")
        tls.reload(pair.files)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = pair.client()
            context.minimum_version = context.maximum_version = version
            reader, writer = await dial(port, context)
            assert names(writer) == {"localhost", "new.test"}
            await ask(reader, writer)
            writer.close()
        await ask(old_reader, old_writer)
        old_writer.close()


@on_both_loops
async def test_a_client_that_names_no_host_is_served(pair: Pair) -> None:
    tls = ServerTls(pair.files)
    pair.issue("new.test")
    tls.reload(pair.files)
    async with listening(tls) as port:
        context = pair.client()
        context.check_hostname = False
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
        assert "new.test" in names(writer)
        await ask(reader, writer)
        writer.close()


@on_both_loops
async def test_a_pair_that_does_not_fit_changes_nothing(pair: Pair) -> None:
    tls = ServerTls(pair.files)
    stranger = trustme.CA().issue_cert("localhost").private_key_pem.bytes()
    pair.replace_key(stranger)
    with pytest.raises(TlsFault, match="no certificate with its key"):
        tls.reload(pair.files)
    async with listening(tls) as port:
        reader, writer = await dial(port, pair.client())
        await ask(reader, writer)
        writer.close()


@on_both_loops
async def test_who_speaks_no_tls_is_no_client(pair: Pair) -> None:
    async with listening(ServerTls(pair.files)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [("cert.pem", "", "no certificate"), ("key.pem", "words", "no certificate"), ("cert.pem", None, "cannot be read")],
)
def test_files_that_are_none(pair: Pair, tmp_path: Path, name: str, text: str | None, told: str) -> None:
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(TlsFault, match=told):
        ServerTls(pair.files)


def test_an_encrypted_key_asks_nobody_for_its_passphrase(pair: Pair, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key((tmp_path / "key.pem").read_bytes(), password=None)
    sealed = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret"))
    (tmp_path / "key.pem").write_bytes(sealed)
    with pytest.raises(TlsFault, match="the key is encrypted"):
        ServerTls(pair.files)
