"""TLS for the listener: a certificate and its key from files, replaced while connections run.

Invariants: HTTP/1.1 alone is offered, over TLS 1.2 or newer; a pair that cannot be used changes nothing. The context that
the listener was started with stays for its whole life and asks, at each handshake, for the one that holds the present
pair: so a reload is one assignment, and no handshake sees a new certificate with an old key.

Source: RFC 7301 (ALPN), RFC 8996 (TLS 1.0 and 1.1 are no more).
"""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

ENCRYPTED = "the key is encrypted: give a key without a passphrase, in a file that its owner alone may read"


class TlsFault(Exception):
    """A certificate or key that cannot be used. The text names the file and what to do."""


class TlsFiles(msgspec.Struct, frozen=True):
    cert_file: str
    """The certificate, then those that lead to its authority, in PEM."""
    key_file: str


class ServerTls:
    """`context` is for the listener. Raises TlsFault when made of files that cannot be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._present = _load(files)
        self.context = _new_context()
        # A context needs a pair of its own before a handshake begins.
        self.context.load_cert_chain(*_paths(files))
        self.context.sni_callback = self._choose

    def reload(self, files: TlsFiles) -> None:
        """For handshakes that begin from now on. Raises TlsFault; then the pair in use stays."""
        self._present = _load(files)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called at every handshake, with a name or without."""
        connection.context = self._present


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _paths(files: TlsFiles) -> tuple[str, str]:
    return str(Path(files.cert_file).expanduser()), str(Path(files.key_file).expanduser())


def _load(files: TlsFiles) -> ssl.SSLContext:
    context = _new_context()
    cert, key = _paths(files)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise TlsFault(f"{files.cert_file} and {files.key_file}: no certificate with its key ({why})") from None
    except OSError as error:
        raise TlsFault(f"{files.cert_file}: cannot be read: {error.strerror or 'not a file'}") from None
    except ValueError:
        raise TlsFault(f"{files.key_file}: {ENCRYPTED}") from None
    return context


def _no_password() -> str:
    """Called for an encrypted key only: without it, OpenSSL would ask at the terminal."""
    raise ValueError
