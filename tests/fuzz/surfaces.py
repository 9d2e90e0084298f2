"""The parsers besides the codecs: what each is fed, which words matter to it, and who judges it.

A `Surface` is damaged as text: bytes, its own words, pieces of its other seeds. Judges are in `framing` (streams and JSON),
`heads` (HTTP) and `languages` (headers, queries, files).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from tests.fuzz import framing, heads, languages

Judge = Callable[[list[bytes], random.Random], None]


class Surface(msgspec.Struct, frozen=True):
    """`words` are put in and swapped for one another."""

    judge: Judge
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...]


_NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"inf", b"1_0", b"99999999999999999999", b"0x1", "\u0663".encode(), b"")
_BYTES = (b"\0", b"\r", b"\n", b"\r\n", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", b" ", b"\t", b"a" * 300)
_JSON = (b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b",", b":", b"null", b"true", b'{"a":1}', b'"",')

SURFACES: dict[str, Surface] = {
    "sse": Surface(framing.judge_sse, framing.EVENTS, (*_BYTES, *framing.EVENT_WORDS)),
    "ndjson": Surface(framing.judge_ndjson, framing.LINES, (*_BYTES, *_JSON)),
    "numbering": Surface(framing.judge_numbering, framing.EVENTS, (*_BYTES, *framing.EVENT_WORDS)),
    "splice": Surface(framing.judge_splice, framing.OBJECTS, (*_BYTES, *_JSON, *_NUMBERS, b'"strom":', b'"strom" :')),
    "json-scan": Surface(framing.judge_json_scan, framing.OBJECTS, (*_BYTES, *_JSON, b"```json\n", b"```", b"x{")),
    "partial-json": Surface(framing.judge_partial, framing.OBJECTS, (*_BYTES, *_JSON, *_NUMBERS, b"```json\n")),
    "gzip": Surface(framing.judge_coding, framing.CODED, _BYTES),
    "request-head": Surface(heads.judge_request, heads.REQUESTS, (*_BYTES, *heads.WORDS, *_NUMBERS)),
    "response-head": Surface(heads.judge_response, heads.RESPONSES, (*_BYTES, *heads.WORDS, *_NUMBERS)),
    "chunks": Surface(heads.judge_chunks, heads.CHUNKED, (*_BYTES, *heads.CHUNK_WORDS, *_NUMBERS)),
    "origin": Surface(heads.judge_origin, heads.ORIGINS, (*_BYTES, b"://", b"null", b"localhost", b"[", b"]", b":80")),
    "credentials": Surface(heads.judge_credentials, heads.CREDENTIALS, (*_BYTES, b"Bearer ", b"sk-1", b",")),
    "trace-context": Surface(heads.judge_trace_context, heads.CONTEXTS, (*_BYTES, *_NUMBERS, b"-", b"00-", b"=", b",")),
    "config": Surface(languages.judge_config, languages.CONFIGS, (*_BYTES, *_NUMBERS, *languages.CONFIG_WORDS)),
    "cursor": Surface(languages.judge_cursor, languages.CURSORS, (*_BYTES, *_JSON, *_NUMBERS, b"=", b"-_", b"AA")),
    "query": Surface(languages.judge_query, languages.QUERIES, (*_BYTES, *_NUMBERS, *languages.QUERY_WORDS)),
    "last-event-id": Surface(languages.judge_last_event_id, languages.EVENT_IDS, (*_BYTES, *_NUMBERS)),
    "timeouts": Surface(languages.judge_timeouts, languages.WISHES, (*_BYTES, *_NUMBERS, *languages.WISH_WORDS)),
    "faults": Surface(languages.judge_faults, languages.FAULT_SPECS, (*_BYTES, *_NUMBERS, *languages.FAULT_WORDS)),
    "recording": Surface(languages.judge_recording, languages.RECORDINGS, (*_BYTES, *_JSON, *_NUMBERS)),
    "journal": Surface(languages.judge_journal, languages.RECORDS, (*_BYTES, *_JSON, *_NUMBERS)),
    "key-body": Surface(languages.judge_key_body, languages.KEY_BODIES, (*_BYTES, *_JSON, *_NUMBERS)),
    "base-url": Surface(languages.judge_base_url, languages.URLS, (*_BYTES, *_NUMBERS, *languages.URL_WORDS)),
    "media-url": Surface(languages.judge_media_url, languages.URLS, (*_BYTES, *_NUMBERS, *languages.URL_WORDS)),
    "store-url": Surface(languages.judge_store_url, languages.STORE_URLS, (*_BYTES, *_NUMBERS, *languages.URL_WORDS)),
}


def make_data(surface: Surface, draw: random.Random) -> bytes:
    """A seed with one to six changes; now and then it stays as it is, or nothing but words is left."""
    if draw.random() < 0.05:
        return b"".join(draw.choices(surface.words, k=draw.randint(0, 12)))
    data = draw.choice(surface.seeds)
    for _ in range(draw.choice((0, 1, 1, 2, 3, 6))):
        data = draw.choice(_CHANGES)(data, surface, draw)
    return data[:200_000]


def _flip(data: bytes, _: Surface, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) or 1)
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def _put_word(data: bytes, surface: Surface, draw: random.Random) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice(surface.words) + data[at + draw.choice((0, 0, 1, 3)) :]


def _swap_word(data: bytes, surface: Surface, draw: random.Random) -> bytes:
    there = [word for word in surface.words if word and word in data]
    if not there:
        return _put_word(data, surface, draw)
    return data.replace(draw.choice(there), draw.choice(surface.words), draw.choice((1, 1, -1)))


def _cut_out(data: bytes, _: Surface, draw: random.Random) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + data[at + draw.choice((1, 1, 2, 10, 60)) :]


def _repeat(data: bytes, _: Surface, draw: random.Random) -> bytes:
    at, size = draw.randint(0, len(data)), draw.choice((1, 2, 10, 60))
    return data[:at] + data[at : at + size] * draw.choice((2, 2, 2, 40)) + data[at + size :]


def _cross(data: bytes, surface: Surface, draw: random.Random) -> bytes:
    other = draw.choice(surface.seeds)
    return data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]


def _end(data: bytes, _: Surface, draw: random.Random) -> bytes:
    return data[: draw.randint(0, len(data))]


_CHANGES: tuple[Callable[[bytes, Surface, random.Random], bytes], ...] = (
    _flip, _put_word, _put_word, _swap_word, _swap_word, _cut_out, _repeat, _cross, _end,
)  # fmt: skip
