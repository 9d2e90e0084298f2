"""Requests that two readers could frame differently, each with another request hidden in what one of them takes for a body.

`HIDDEN` is what an attacker wants the server to answer: a request that nobody sent as such. Each message is one request to
`/first`, or none at all.

Source: RFC 9112 section 11.2, and the variants of request smuggling that proxies are commonly tested with.
"""

from __future__ import annotations

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
END = b"0\r\n\r\n"


def post(*lines: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    head = [b"POST /first HTTP/" + version, b"Host: a.test", *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def counted(*lines: bytes, body: bytes = HIDDEN) -> bytes:
    """A body whose length is told, after other lines."""
    return post(*lines, b"Content-Length: %d" % len(body), body=body)


def both(*codings: bytes) -> bytes:
    """Told as counted and, in some spelling, as chunked: chunked, the hidden request would stand alone."""
    return counted(*codings, body=END + HIDDEN)


def chunked(body: bytes, *lines: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", *lines, body=body)


CODINGS = {
    "plain": [b"Transfer-Encoding: chunked"],
    "upper case": [b"TRANSFER-ENCODING: CHUNKED"],
    "twice": [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
    "then another": [b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"],
    "after another": [b"Transfer-Encoding: x", b"Transfer-Encoding: chunked"],
    "list": [b"Transfer-Encoding: identity, chunked"],
    "list, chunked first": [b"Transfer-Encoding: chunked, identity"],
    "unknown": [b"Transfer-Encoding: xchunked"],
    "quoted": [b'Transfer-Encoding: "chunked"'],
    "parameter": [b"Transfer-Encoding: chunked;q=1"],
    "tab": [b"Transfer-Encoding:\tchunked"],
    "vertical tab": [b"Transfer-Encoding: \x0bchunked"],
    "form feed": [b"Transfer-Encoding: chunked\x0c"],
    "NUL": [b"Transfer-Encoding: chunked\0"],
    "space before the colon": [b"Transfer-Encoding : chunked"],
    "tab before the colon": [b"Transfer-Encoding\t: chunked"],
    "leading space": [b" Transfer-Encoding: chunked"],
    "folded": [b"Transfer-Encoding:", b" chunked"],
    "after a bare LF": [b"X: y\nTransfer-Encoding: chunked"],
    "after a bare CR": [b"X: y\rTransfer-Encoding: chunked"],
    "CR before the colon": [b"Transfer-Encoding\r: chunked"],
    "underscore": [b"Transfer_Encoding: chunked"],
    "empty": [b"Transfer-Encoding:"],
}

MESSAGES = {
    **{f"length and coding: {name}": both(*lines) for name, lines in CODINGS.items()},
    **{f"coding alone: {name}": post(*lines, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN))
       for name, lines in CODINGS.items()},
    "coding, then length": post(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=END + HIDDEN),
    "length 0 and N": counted(b"Content-Length: 0"),
    "length N and 0": post(b"Content-Length: %d" % len(HIDDEN), b"Content-Length: 0", body=HIDDEN),
    "length list": post(b"Content-Length: 0, %d" % len(HIDDEN), body=HIDDEN),
    "length with plus": post(b"Content-Length: +%d" % len(HIDDEN), body=HIDDEN),
    "length with minus": post(b"Content-Length: -%d" % len(HIDDEN), body=HIDDEN),
    "length in hex": post(b"Content-Length: 0x%x" % len(HIDDEN), body=HIDDEN),
    "length with a space": post(b"Content-Length: %d 0" % len(HIDDEN), body=HIDDEN),
    "length with a dot": post(b"Content-Length: %d.0" % len(HIDDEN), body=HIDDEN),
    "length with leading zeros": post(b"Content-Length: 00%d" % len(HIDDEN), body=HIDDEN),
    "length too large for a number": post(b"Content-Length: 18446744073709551616", body=HIDDEN),
    "length with a space before the colon": post(b"Content-Length : %d" % len(HIDDEN), body=HIDDEN),
    "length folded": post(b"Content-Length:", b" %d" % len(HIDDEN), body=HIDDEN),
    "length after a bare LF": post(b"X: y\nContent-Length: %d" % len(HIDDEN), body=HIDDEN),
    "length after a bare CR": post(b"X: y\rContent-Length: %d" % len(HIDDEN), body=HIDDEN),
    "length with NUL": post(b"Content-Length: %d\0" % len(HIDDEN), body=HIDDEN),
    "length of an underscore": post(b"Content_Length: %d" % len(HIDDEN), b"Content-Length: 0x", body=HIDDEN),
    "length over the limit": post(b"Content-Length: 99999999", body=HIDDEN),
    "GET with a body": b"GET /first HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN),
    "HEAD with a body": b"HEAD /first HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN),
    "head of bare LFs": b"POST /first HTTP/1.1\nHost: a.test\nContent-Length: %d\n\n%b" % (len(HIDDEN), HIDDEN),
    "NUL in a name": counted(b"X\0: y"),
    "two hosts": counted(b"Host: b.test"),
    "absolute form for another host": (
        b"POST http://b.test/first HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN)
    ),
    "chunk size beyond 64 bits": chunked(b"10000000000000003\r\nabc\r\n" + END + HIDDEN),
    "chunk size that wraps to nothing": chunked(b"10000000000000000\r\n\r\n" + HIDDEN),
    "chunk size negative": chunked(b"-1\r\n\r\n" + END + HIDDEN),
    "chunk size with prefix": chunked(b"0x0\r\n\r\n" + HIDDEN),
    "chunk size with space": chunked(b"0 \r\n\r\n" + HIDDEN),
    "chunk size empty": chunked(b"\r\n\r\n" + HIDDEN),
    "chunks ended by LF": chunked(b"3\nabc\n0\n\n" + HIDDEN),
    "chunk ended by two other bytes": chunked(b"3\r\nabcXX0\r\n\r\n" + HIDDEN),
    "chunk extension with LF": chunked(b"0;a\n\r\n\r\n" + HIDDEN),
    "chunk extension with CR": chunked(b"0;a\r0\r\n\r\n" + HIDDEN),
    "huge chunk extension": chunked(b"3;" + b"a" * 200_000 + b"\r\nabc\r\n"),
    "length in a trailer": chunked(b"0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN)),
    "coding in a trailer": chunked(b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "too many trailers": chunked(b"0\r\n" + b"X: y\r\n" * 500 + b"\r\n"),
    "chunked in HTTP/1.0": post(b"Transfer-Encoding: chunked", b"Connection: keep-alive", body=END + HIDDEN, version=b"1.0"),
    "HTTP/1.0 that closes": post(b"Content-Length: 0", body=HIDDEN, version=b"1.0"),
    "connection: close": post(b"Connection: close", b"Content-Length: 0", body=HIDDEN),
    "upgrade to a web socket": counted(b"Connection: Upgrade", b"Upgrade: websocket"),
    "upgrade to h2c": counted(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    "HTTP/0.9": b"GET /first\r\n" + HIDDEN,
    "CONNECT": b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n" + HIDDEN,
    "expectation that is met": counted(b"Expect: 100-continue"),
    "expectation that is none": counted(b"Expect: tea"),
    "head over the limit": counted(b"X: " + b"y" * 70_000),
    "line without a colon": counted(b"hello"),
    "nothing but line ends": b"\r\n" * 50_000 + HIDDEN,
}  # fmt: skip
