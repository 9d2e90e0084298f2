"""Judges of the small languages: headers, queries, cursors, URLs, faults, and the files that are read back.

Promise of each: what does not fit is one of our own errors, which repeats no secret; what fits means the same when it is
written out and read again.
"""

from __future__ import annotations

import functools
import math
import random
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec

from strom.config.load import load_settings
from strom.config.settings import Overrides
from strom.core.errors import BadRequest, ConfigError
from strom.core.record import CallRecord
from strom.gateway.media_urls import parse_place
from strom.gateway.routing import Router
from strom.replay.faults import BadFault, parse_faults
from strom.replay.lines import decode as decode_recordings
from strom.replay.lines import encode as encode_recording
from strom.replay.recording import BadRecording
from strom.replay.script import write_script
from strom.server.following import last_event_id
from strom.server.platform_asking import read_body
from strom.server.platform_keys import scopes_of
from strom.server.platform_types import NewKey, RotateKey
from strom.shared.streams import home_of, protocol_of
from strom.stores.keys import KeyStore
from strom.stores.query import encode_query, parse_query
from strom.stores.records import RecordFilter, RecordStore, encode_cursor
from strom.stores.recovery import settled
from strom.stores.rows import encode as encode_record
from strom.stores.table import open_key_store, open_store
from strom.stores.urls import parse_store_url
from strom.stores.usage import UsageQuery, encode_usage, parse_usage_query
from strom.transport.memory import MemoryExchange
from strom.upstreams.timeouts import Timeouts, parse_wishes
from strom.upstreams.upstream import Upstream
from strom.upstreams.urls import parse_base_url
from tests.fuzz.heads import told_or
from tests.replay.recordings import stream, whole

CONFIGS = (
    b"""[server]
port = 8080
heartbeat_s = 15
reasoning = "native"
[auth]
required = true
[limits]
tokens_per_minute = 9
[[providers]]
name = "p"
protocol = "openai-chat"
base_url = "http://127.0.0.1:8081/v1"
api_key_env = "KEY_ENV"
[providers.timeouts]
connect_s = 5
[providers.quirks]
done_required = true
""",
    b"""[[providers]]
name = "p"
kind = "openai"
[[models]]
name = "m"
aliases = ["claude-*"]
strategy = "fastest"
retries = 2
[[models.endpoints]]
provider = "p"
model = "x"
order = 1
max_concurrent = 3
price = { input = 1.0, output = 2.0, currency = "EUR" }
[[keys]]
name = "k"
key_env = "KEY_ENV"
models = ["m*"]
policy = "eu"
limits = { budget = { amount = 5, currency = "EUR", per = "day" } }
[[policies]]
id = "eu"
regions = ["eu-*"]
""",
    b'[store]\nurl = "sqlite:///x.db"\nretention_days = 3\n[shared]\nurl = "redis://h:1/0"\n[telemetry]\nmax_models = 3\n',
)
CONFIG_WORDS = (
    b"[[models]]\n", b"[server]\n", b"[", b"]", b'"', b"'", b"=", b"{", b"}", b"true", b"[]", b"''", b'"auto"', b"1979-05-27",
    b"workers", b"unknown", b"api_key", b"sk-secret", b'"p"', b"[server.tls]\ncert_file = 3\n", b"-", b"1e400", b"\\ud800",
)  # fmt: skip
QUERIES = (
    b"status=completed&since=2026-03-01T12:00:00Z&limit=10",
    b"by=key,model,day&key_name=k&until=1.7e9",
    b"by=day&cursor=WyIiXQ&model=m&fault=upstream",
    b"cursor=WzEuMCwidCJd&ended_since=2026-03-01&protocol_in=anthropic&limit=1000",
)
QUERY_WORDS = (
    b"&", b"=", b"%00", b"%ff", b"%ed%a0%80", b"since=", b"until=", b"limit=", b"cursor=", b"by=", b"day", b"key,", b"status=",
    b"completed", b"+", b"9999-12-31T23:59:59Z", b"0001-01-01", b"-62135596800", b"253402300800", b"1e308", b"T", b"Z",
)  # fmt: skip
EVENT_IDS = (b"0", b"17", b" 3 ", b"999999999999999", b"/strm_c01234567_abcdefghijklmnopqrstuv")
WISHES = (b"first_token_s=10, idle_s=5, total_s=60", b"connect_s=0.5", b"min_chars_per_s=3,idle_s=1e3")
WISH_WORDS = (
    b"first_token_s",
    b"idle_s=",
    b"total_s",
    b"min_chars_per_s=",
    b"throughput_window_s=1",
    b"=",
    b",",
    b", ",
)
FAULT_SPECS = (
    b"cut@120=reset; every=2",
    b"stall@1t=0.5; garbage@3=16; giant@9t=100",
    b"status=429; retry-after=3",
    b"trickle=1; gzip; double-terminator",
    b"html=503; slow-head=1",
    b"no-terminator;stall@0;cut@5t=half",
)
FAULT_WORDS = (
    b";", b"@", b"=", b"cut", b"stall", b"trickle", b"garbage", b"giant", b"no-terminator", b"double-terminator", b"gzip",
    b"status", b"retry-after", b"html", b"slow-head", b"tls", b"every", b"close", b"reset", b"half", b"3t", b"t",
)  # fmt: skip
KEY_BODIES = (
    b'{"name":"k","models":["m*"],"limits":{"tokens_per_minute":5,"budget":{"amount":1.5,"currency":"EUR"}}}',
    b'{"name":"k","expires_at":"2030-01-01T00:00:00Z","admin":true,"routes":["/v1/*"],"policy":null}',
    b'{"overlap_s":60}',
)
URLS = (
    b"http://host:8081/v1",
    b"https://user:sk-secret@[2001:db8::1]:443/v1beta/openai?api-version=x#f",
    b"http://127.0.0.1/a%20b/../c?q=1&r=%zz",
    "https://bücher.example/ü".encode(),
    b"http://2130706433/latest",
)
STORE_URLS = (
    b"sqlite:///strom.db",
    b"postgresql://user:sk-secret@host:5432/db?sslmode=require",
    b"memory://",
    b"sqlite:////a",
)
URL_WORDS = (
    b"://", b"http", b"https", b"ftp", b"@", b":", b"/", b"//", b"?", b"#", b"[", b"]", b"::1", b"localhost", b"127.1",
    b"0177.1", b"0x7f.1", b"%", b"%25", b"..", b"sk-secret", b"xn--",
    b"\xc3\xbc", b"\xe2\x84\x80", b"v1", b"postgresql", b"sqlite", b"\\",
)  # fmt: skip


def _record(trace_id: str, **more: Any) -> CallRecord:
    return CallRecord(
        trace_id, started_at=1.7e9, ended_at=1.7e9 + 1, protocol_in="anthropic", model_requested="m", **more
    )


CURSORS = (
    encode_cursor(_record("t1")).encode(),
    b"WyJrIiwibSIsIjIwMjYtMDMtMDEiXQ",
    b"WyIiXQ",
    b"WzFlMzA4LCJcdWQ4MDAiXQ",
    b"WzEuMCwidFx1MDAwMCJd",
)
RECORDS = tuple(encode_record(record) for record in (_record("t1", status="completed"), _record("t2")))
RECORDINGS = (encode_recording(stream()), encode_recording(whole("hi")) + encode_recording(stream(kind="cut")))


def _text(pieces: list[bytes]) -> str:
    """As a header's value or an argument of a program has it: any byte is some character."""
    data = b"".join(pieces)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="strom-fuzz-"))


@functools.cache
def _store() -> RecordStore:
    store = open_store(f"sqlite:///{_folder() / 'records.db'}")
    for number in range(5):
        store.put(_record(f"t{number}", status="completed", key_name="k"))
    store.flush()
    return store


@functools.cache
def _keys() -> KeyStore:
    return open_key_store(f"sqlite:///{_folder() / 'records.db'}")


def judge_config(pieces: list[bytes], _: random.Random) -> None:
    path = _folder() / "strom.toml"
    path.write_bytes(b"".join(pieces))
    environ = {"KEY_ENV": "sk-environment", "HOME": str(_folder())}
    settings = told_or(ConfigError, lambda: load_settings(path, Overrides(), environ))
    assert "sk-environment" not in f"{settings!s} {settings!r}", "a key is shown"
    if not isinstance(settings, ConfigError):
        Router([Upstream(each) for each in settings.providers.values()], settings.models, settings.policies)


def judge_cursor(pieces: list[bytes], _: random.Random) -> None:
    text = _text(pieces)
    for ask in (
        lambda: _store().list(RecordFilter(), 2, text),
        lambda: _store().usage(UsageQuery(limit=2, cursor=text)),
        lambda: _store().usage(UsageQuery(("day",), limit=2, cursor=text)),
        lambda: _keys().list(2, text),
    ):
        told_or(BadRequest, ask)


def judge_query(pieces: list[bytes], _: random.Random) -> None:
    params = {name: values[-1] for name, values in parse_qs(_text(pieces)).items()}
    try:
        query = parse_query(params)
    except BadRequest:
        pass
    else:
        told_or(BadRequest, lambda: _store().list(query.wanted, query.limit, query.cursor))
        again = parse_query(encode_query(query))
        assert again.wanted.status == query.wanted.status
        assert again.limit == query.limit
    try:
        usage = parse_usage_query(params)
    except BadRequest:
        return
    told_or(BadRequest, lambda: encode_usage(_store().usage(usage)))


def judge_last_event_id(pieces: list[bytes], _: random.Random) -> None:
    value = b"".join(pieces)
    exchange = MemoryExchange("GET", "/v1/streams/x", headers=[(b"last-event-id", value)])
    try:
        number = last_event_id(exchange)
    except BadRequest:
        pass
    else:
        assert 0 <= number < 10**15
        assert int(value.strip()) == number
    path = value.decode("latin-1").removeprefix("/")
    assert (home_of(path) is None) == (protocol_of(path) is None)


def judge_timeouts(pieces: list[bytes], _: random.Random) -> None:
    try:
        wishes = parse_wishes(b"".join(pieces))
    except BadRequest:
        return
    base = Timeouts(total_s=100.0, min_chars_per_s=2.0)
    tight = wishes.tightening(base)
    for name in ("connect_s", "first_token_s", "idle_s", "total_s"):
        now, before = getattr(tight, name), getattr(base, name)
        assert math.isfinite(now), f"{name} {now}"
        assert 0 < now <= before
    assert base.min_chars_per_s <= tight.min_chars_per_s < math.inf
    unlimited = wishes.tightening(Timeouts())
    assert unlimited.total_s is None or 0 < unlimited.total_s < math.inf


def judge_faults(pieces: list[bytes], draw: random.Random) -> None:
    try:
        spec = parse_faults(_text(pieces))
    except BadFault:
        return
    assert parse_faults(str(spec)).faults == spec.faults
    large = any(fault.name in ("garbage", "giant") and fault.value > 100_000 for fault in spec.faults)
    if not large:
        for recording in (stream(), whole("hi")):
            script = write_script(recording, spec, draw, speed=None)
            assert all(step is not None for step in script.steps)


def judge_recording(pieces: list[bytes], _: random.Random) -> None:
    try:
        recordings = decode_recordings(b"".join(pieces), "file")
    except BadRecording:
        return
    for recording in recordings:
        assert decode_recordings(encode_recording(recording), "file") == [recording]


def judge_journal(pieces: list[bytes], _: random.Random) -> None:
    """Slots of a file that a dead process left, whatever stands in them: no other call may be lost for it."""
    intact = encode_record(_record("intact"))
    records = settled([b"".join(pieces), intact], 1.7e9 + 5)
    assert [record.status for record in records if record.trace_id == "intact"] == ["failed"]
    for record in records:
        encode_record(record)


def judge_key_body(pieces: list[bytes], _: random.Random) -> None:
    exchange = MemoryExchange("POST", "/platform/v1/keys", body=b"".join(pieces))
    try:
        asked = read_body(exchange, NewKey)
    except BadRequest:
        pass
    else:
        scopes_of(asked)
        msgspec.json.encode(asked)
    told_or(BadRequest, lambda: read_body(exchange, RotateKey))


def judge_base_url(pieces: list[bytes], _: random.Random) -> None:
    text = _text(pieces)
    base = told_or(ConfigError, lambda: parse_base_url(text))
    if isinstance(base, ConfigError):
        assert "sk-secret" not in str(base), "credentials in an error"
        return
    target = base.target("/v1/chat/completions")
    assert target.startswith("/")
    assert target.isascii()
    assert target.isprintable()
    assert " " not in target
    assert b"@" not in base.origin.authority


def judge_media_url(pieces: list[bytes], _: random.Random) -> None:
    place = told_or(BadRequest, lambda: parse_place(_text(pieces), "messages[0]"))
    if isinstance(place, BadRequest):
        assert "sk-secret" not in str(place), "credentials in an error"
        return
    assert place.target.startswith("/")
    assert place.target.isascii()
    assert place.target.isprintable()
    assert " " not in place.target
    assert place.origin.host not in ("", ".")
    assert 0 < place.origin.port < 65536


def judge_store_url(pieces: list[bytes], _: random.Random) -> None:
    url = told_or(ConfigError, lambda: parse_store_url(_text(pieces)))
    if isinstance(url, ConfigError):
        assert "sk-secret" not in str(url), "a password in an error"
        return
    shown = f"{url!r} {url.shown}"
    assert url.scheme != "postgresql" or ":sk-secret@" not in shown, "a password is shown"
