"""The server's connection on a fake transport: requests in, responses out, order, patience, backpressure."""

from __future__ import annotations

import pytest

from strom.transport.types import Exchange, ServerLimits
from tests.transport.fakes import GET, Wire, post, request


def hello(exchange: Exchange) -> None:
    exchange.respond(200, [(b"content-type", b"text/plain")], b"hello")


# -- requests


def test_a_request_is_handed_over_whole() -> None:
    exchange = Wire().feed(post(b"body", b"X-Thing:  a b \t")).one
    head = exchange.head
    assert (head.method, head.path, head.query, head.http_version) == ("POST", "/v1/x", "", "1.1")
    assert head.header(b"x-thing") == b"a b"
    assert head.peer == "192.0.2.7"
    assert exchange.body == b"body"
    assert exchange.refusal is None


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%20b?x=1?y", "/a%20b", "x=1?y"),
        (b"http://other.test:8/p/q?z", "/p/q", "z"),
        (b"http://other.test", "/", ""),
        (b"http://other.test?q=/x", "/", "q=/x"),
        (b"//twice", "//twice", ""),
    ],
)
def test_targets(target: bytes, path: str, query: str) -> None:
    head = Wire().feed(request(b"GET %b HTTP/1.1" % target)).one.head
    assert (head.path, head.query) == (path, query)


def test_options_star() -> None:
    assert Wire().feed(request(b"OPTIONS * HTTP/1.1")).one.head.path == "*"


def test_chunked_bodies_are_joined_and_trailers_dropped() -> None:
    body = b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-Trailer: t\r\n\r\n"
    exchange = Wire().feed(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked", body=body)).one
    assert exchange.body == b"abcdefg"
    assert exchange.head.header(b"x-trailer") is None


MESSAGES = [
    GET,
    post(b"some body"),
    request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nT: t\r\n\r\n"),
    b"\r\n" + GET,
    request(b"GET / HTTP/1.0", host=False),
    request(b"GET / HTTP/1.1", host=False),
    request(b"POST /u HTTP/1.1", b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 3", body=b"abc"),
    request(
        b"POST /u HTTP/1.1", b"Connection: upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked",
        body=b"3\r\nabc\r\n0\r\n\r\n",
    ),
    request(b"GET /u HTTP/1.1", b"Connection: upgrade", b"Upgrade: websocket"),
    request(b"GET / HTTP/2.0"),
    request(b"GET /a#b HTTP/1.1"),
    b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_cuts_do_not_matter(message: bytes) -> None:
    def outcome(step: int) -> tuple[object, ...]:
        wire = Wire(answer=hello).feed(message, step=step)
        seen = [(e.head, e.body, e.refusal) for e in wire.exchanges]
        return seen, wire.transport.sent, wire.transport.closed, wire.transport.eof_written

    whole = outcome(0)
    steps = (1, 7, 1000) if len(message) < 1000 else (1000, 65_536)
    assert [outcome(step) for step in steps] == [whole] * len(steps)
    assert len(whole[0]) == 1  # type: ignore[arg-type]


def test_an_upgrade_is_ignored_and_the_connection_goes_on() -> None:
    upgrade = request(b"POST /u HTTP/1.1", b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 3", body=b"abc")
    wire = Wire(answer=hello).feed(upgrade + GET + upgrade)
    assert [(e.head.path, e.body) for e in wire.exchanges] == [("/u", b"abc"), ("/", b""), ("/u", b"abc")]
    assert wire.exchanges[0].head.header(b"upgrade") == b"h2c"


# -- responses


def test_a_whole_response_is_one_write() -> None:
    wire = Wire(answer=hello).feed(GET)
    assert wire.transport.writes == [b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"]
    assert not wire.transport.is_closing()


def test_a_large_body_follows_its_head() -> None:
    wire = Wire(answer=lambda e: e.respond(200, [], b"x" * 100_000)).feed(GET)
    assert wire.transport.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000


def test_a_stream_leaves_piece_by_piece_in_one_write_each() -> None:
    wire = Wire().feed(GET)
    exchange = wire.one
    exchange.start(200, [])
    assert wire.transport.writes == []
    exchange.write(b"first")
    exchange.write(b"second piece....")
    exchange.write(b"")
    exchange.finish(b"last")
    assert wire.transport.writes == [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n5\r\nfirst\r\n",
        b"10\r\nsecond piece....\r\n",
        b"4\r\nlast\r\n0\r\n\r\n",
    ]
    assert exchange.bytes_out == 5 + 16 + 4
    assert not exchange.closed
    assert not wire.transport.is_closing()


def test_an_empty_write_sends_the_head() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [])
    wire.one.write(b"")
    assert wire.transport.take().endswith(b"\r\n\r\n")
    wire.one.finish()
    assert wire.transport.take() == b"0\r\n\r\n"


def test_head_and_everything_in_one_write() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [])
    wire.one.finish(b"all")
    assert len(wire.transport.writes) == 1
    assert wire.transport.sent.endswith(b"\r\n\r\n3\r\nall\r\n0\r\n\r\n")


def test_a_told_length() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [], length=6)
    wire.one.write(b"abc")
    wire.one.finish(b"def")
    assert wire.transport.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabcdef"


def test_less_than_the_told_length_cuts() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [], length=6)
    wire.one.finish(b"abc")
    assert wire.one.closed
    assert wire.transport.closed


def test_more_than_the_told_length_is_an_error() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [], length=2)
    with pytest.raises(ValueError, match="content-length"):
        wire.one.write(b"abc")
    assert wire.transport.closed


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(status: int) -> None:
    wire = Wire(answer=lambda e: e.respond(status, [], b"")).feed(GET)
    assert wire.transport.sent.split(b"\r\n", 1)[1] == b"\r\n"
    assert not wire.transport.is_closing()


def test_head_has_the_length_and_no_body() -> None:
    wire = Wire(answer=hello).feed(request(b"HEAD / HTTP/1.1") + GET)
    first = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n"
    assert wire.transport.writes == [first, first + b"hello"]


def test_head_of_a_stream() -> None:
    wire = Wire().feed(request(b"HEAD / HTTP/1.1"))
    wire.one.start(200, [])
    wire.one.write(b"abc")
    wire.one.write(b"def")
    wire.one.finish(b"ghi")
    assert wire.transport.sent.endswith(b"connection: keep-alive\r\n\r\n")
    assert wire.one.bytes_out == 0
    assert not wire.transport.is_closing()


def test_an_unknown_status_has_no_phrase() -> None:
    wire = Wire(answer=lambda e: e.respond(499, [], b"")).feed(GET)
    assert wire.transport.sent.startswith(b"HTTP/1.1 499 \r\n")


# -- HTTP/1.0


def test_http_1_0_is_delimited_by_close() -> None:
    wire = Wire().feed(request(b"GET / HTTP/1.0", b"Connection: keep-alive"))
    wire.one.start(200, [])
    wire.one.write(b"abc")
    assert wire.transport.sent == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"
    wire.one.finish(b"def")
    assert wire.transport.sent.endswith(b"abcdef")
    assert wire.transport.closed


def test_http_1_0_keeps_alive_when_asked_and_possible() -> None:
    wire = Wire(answer=hello).feed(request(b"GET / HTTP/1.0", b"Connection: keep-alive"))
    assert b"connection: keep-alive\r\n" in wire.transport.take()
    wire.feed(request(b"GET / HTTP/1.0"))
    assert b"connection: close\r\n" in wire.transport.take()
    assert wire.transport.closed


def test_connection_close_is_obeyed_and_what_follows_dropped() -> None:
    wire = Wire().feed(request(b"GET / HTTP/1.1", b"Connection: close") + GET)
    wire.feed(b"more and more")
    wire.one.start(200, [])
    wire.one.finish(b"x")
    assert b"connection: close\r\n" in wire.transport.sent
    assert wire.transport.closed


# -- order of calls


def test_calls_out_of_order_raise() -> None:
    exchange = Wire().feed(GET).one
    with pytest.raises(RuntimeError):
        exchange.write(b"x")
    with pytest.raises(RuntimeError):
        exchange.finish(b"x")
    exchange.start(200, [])
    with pytest.raises(RuntimeError):
        exchange.start(200, [])
    with pytest.raises(RuntimeError):
        exchange.respond(200, [], b"")
    exchange.finish()
    with pytest.raises(RuntimeError):
        exchange.write(b"x")
    with pytest.raises(RuntimeError):
        exchange.finish(b"x")
    exchange.abort()
    assert not exchange.closed


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x", b"a\r\nb: c")],
        [(b"x", b"a\nb")],
        [(b"x", b"a\rb")],
        [(b"x", b"a\0b")],
        [(b"x: y\r\nz", b"a")],
        [(b"x y", b"a")],
        [(b"", b"a")],
        [(b"Content-Length", b"3")],
        [(b"transfer-encoding", b"chunked")],
        [(b"connection", b"close")],
    ],
)
def test_headers_cannot_be_injected(headers: list[tuple[bytes, bytes]]) -> None:
    wire = Wire().feed(GET)
    with pytest.raises(ValueError, match="header"):
        wire.one.start(200, headers)
    assert wire.transport.writes == []
    wire.one.respond(500, [], b"")
    assert wire.transport.sent.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize("status", [100, 101, 1000, 0])
def test_only_final_statuses(status: int) -> None:
    with pytest.raises(ValueError, match="status"):
        Wire().feed(GET).one.start(status, [])


# -- the client leaves


def left(wire: Wire) -> list[str]:
    seen: list[str] = []
    wire.one.on_disconnect = lambda: seen.append("left")
    return seen


@pytest.mark.parametrize("half_closed", [True, False])
@pytest.mark.parametrize("phase", ["before the head", "in silence", "mid-stream"])
def test_leaving_is_told_in_every_phase(phase: str, *, half_closed: bool) -> None:
    wire = Wire().feed(GET)
    seen = left(wire)
    if phase != "before the head":
        wire.one.start(200, [])
    if phase == "mid-stream":
        wire.one.write(b"x")
    if half_closed:
        wire.connection.eof_received()
        assert seen == ["left"]
        assert wire.transport.aborted
    wire.connection.connection_lost(None)
    assert seen == ["left"]
    assert wire.one.closed
    assert not wire.open
    assert not wire.clock.waiting
    wire.one.write(b"x")
    wire.one.finish(b"x")
    wire.one.respond(200, [], b"")
    wire.one.abort()
    assert seen == ["left"]


def test_leaving_before_the_callback_is_set() -> None:
    wire = Wire().feed(GET)
    wire.connection.connection_lost(None)
    assert wire.one.closed


def test_leaving_after_the_response_is_not_told() -> None:
    wire = Wire().feed(GET)
    seen = left(wire)
    wire.one.respond(200, [], b"")
    wire.connection.eof_received()
    wire.connection.connection_lost(None)
    assert seen == []
    assert not wire.one.closed
    assert not wire.transport.aborted


def test_leaving_amid_a_request_is_told_to_nobody() -> None:
    wire = Wire().feed(post(b"abc")[:-1])
    wire.connection.eof_received()
    wire.connection.connection_lost(ConnectionResetError())
    assert wire.exchanges == []


def test_abort_cuts_and_is_silent() -> None:
    wire = Wire().feed(GET)
    seen = left(wire)
    wire.one.start(200, [])
    wire.one.write(b"x")
    wire.one.abort()
    wire.one.abort()
    assert wire.transport.closed
    assert not wire.transport.sent.endswith(b"0\r\n\r\n")
    wire.connection.connection_lost(None)
    assert seen == []


def test_a_closed_connection_is_cut_when_it_cannot_flush() -> None:
    wire = Wire().feed(request(b"GET / HTTP/1.1", b"Connection: close"))
    wire.one.respond(200, [], b"x")
    wire.clock.advance(31)
    assert wire.transport.aborted


# -- backpressure


def test_pause_and_resume_reach_the_exchange() -> None:
    wire = Wire(ServerLimits(write_high_water_bytes=1234)).feed(GET)
    assert wire.transport.high_water == 1234
    seen: list[str] = []
    wire.one.on_pause = lambda: seen.append("pause")
    wire.one.on_resume = lambda: seen.append("resume")
    wire.connection.pause_writing()
    assert wire.one.paused
    wire.connection.resume_writing()
    assert not wire.one.paused
    assert seen == ["pause", "resume"]


def test_the_next_request_waits_until_the_last_answer_is_read() -> None:
    wire = Wire()
    wire.connection.pause_writing()
    wire.feed(GET)
    assert wire.exchanges == []
    wire.connection.resume_writing()
    assert not wire.one.paused


# -- pipelining


def test_answers_come_in_order_one_at_a_time() -> None:
    requests = b"".join(request(b"GET /%d HTTP/1.1" % n) for n in range(5))
    wire = Wire().feed(requests)
    for n in range(5):
        assert len(wire.exchanges) == n + 1
        assert wire.exchanges[n].head.path == f"/{n}"
        wire.exchanges[n].respond(200, [], b"%d" % n)
    assert [part[0:1] for part in wire.transport.sent.split(b"\r\n\r\n")[1:]] == [b"0", b"1", b"2", b"3", b"4"]


def test_many_pipelined_requests_answered_at_once() -> None:
    wire = Wire(answer=hello).feed(GET * 3000)
    assert len(wire.exchanges) == 3000


def test_the_last_request_decides_on_close_not_the_first() -> None:
    wire = Wire().feed(GET + request(b"GET /2 HTTP/1.1", b"Connection: close"))
    wire.exchanges[0].respond(200, [], b"")
    assert b"close" not in wire.transport.take()
    wire.exchanges[1].respond(200, [], b"")
    assert b"connection: close" in wire.transport.take()


def test_reading_pauses_beyond_the_pipelining_limit() -> None:
    wire = Wire(ServerLimits(max_pipelined_bytes=1000)).feed(GET)
    later = post(b"x" * 5000)
    wire.feed(later[:900])
    assert not wire.transport.paused
    wire.feed(later[900:2000])
    assert wire.transport.paused
    wire.exchanges[0].respond(200, [], b"")
    assert not wire.transport.paused
    wire.feed(later[2000:])
    assert wire.exchanges[1].body == b"x" * 5000


def test_a_broken_pipelined_request_is_refused_in_its_turn() -> None:
    wire = Wire().feed(GET + b"NONSENSE\r\n\r\n")
    assert len(wire.exchanges) == 1
    wire.exchanges[0].respond(200, [], b"first")
    assert wire.exchanges[1].refusal is not None
    wire.exchanges[1].respond(400, [], b"second")
    assert wire.transport.sent.endswith(b"connection: close\r\n\r\nsecond")
    assert wire.transport.sent.index(b"first") < wire.transport.sent.index(b"second")


def test_leaving_drops_the_pipelined() -> None:
    wire = Wire().feed(GET * 3)
    seen = left(wire)
    wire.connection.connection_lost(None)
    assert len(wire.exchanges) == 1
    assert seen == ["left"]


# -- Expect


EXPECTING = request(b"POST / HTTP/1.1", b"Content-Length: 3", b"Expect: 100-Continue")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_the_awaited_continue_is_sent_once() -> None:
    wire = Wire(answer=hello).feed(EXPECTING)
    assert wire.transport.take() == CONTINUE
    wire.feed(b"a", step=1).feed(b"bc", step=1)
    assert wire.one.body == b"abc"
    assert CONTINUE not in wire.transport.sent


def test_no_continue_when_the_body_is_there_or_refused_or_the_client_old() -> None:
    assert CONTINUE not in Wire().feed(EXPECTING + b"a").transport.sent
    assert CONTINUE not in Wire(ServerLimits(max_body_bytes=2)).feed(EXPECTING).transport.sent
    assert CONTINUE not in Wire().feed(EXPECTING.replace(b"HTTP/1.1", b"HTTP/1.0")).transport.sent
    assert CONTINUE not in Wire().feed(EXPECTING.replace(b"Length: 3", b"Length: 0")).transport.sent


def test_continue_waits_for_the_answer_before() -> None:
    wire = Wire().feed(GET + EXPECTING)
    assert wire.transport.sent == b""
    wire.one.respond(200, [], b"")
    assert wire.transport.sent.endswith(CONTINUE)


# -- patience


def test_one_timer_serves_many_requests() -> None:
    wire = Wire(answer=hello)
    for _ in range(50):
        wire.feed(GET)
        wire.clock.advance(0.1)
    assert wire.clock.armed == 1


def test_a_silent_new_connection_is_closed_without_a_word() -> None:
    wire = Wire()
    wire.clock.advance(29)
    assert not wire.transport.aborted
    wire.clock.advance(2)
    assert wire.transport.aborted
    assert wire.exchanges == []


def test_a_slow_head_is_refused_however_it_trickles() -> None:
    wire = Wire()
    for byte in GET[:-1]:
        wire.feed(bytes([byte]))
        wire.clock.advance(1)
    assert wire.one.refusal is not None
    assert (wire.one.refusal.status, wire.one.refusal.reason) == (408, "timeout")


def test_a_slow_head_on_a_kept_connection() -> None:
    wire = Wire(answer=hello).feed(GET)
    wire.clock.advance(50)
    wire.feed(b"GET")
    wire.clock.advance(29)
    assert len(wire.exchanges) == 1
    wire.clock.advance(2)
    assert wire.exchanges[1].refusal is not None


def test_a_body_may_take_its_time_but_not_fall_silent() -> None:
    wire = Wire(ServerLimits(body_timeout_s=10, min_body_bytes_per_s=0.1))
    wire.feed(post(b"x" * 10)[:-10])
    for _ in range(9):
        wire.feed(b"x")
        wire.clock.advance(9)
    assert wire.exchanges == []
    wire.clock.advance(2)
    assert wire.one.refusal is not None
    assert wire.one.refusal.status == 408
    assert wire.one.head.path == "/v1/x"


def test_an_idle_connection_is_kept_and_then_closed() -> None:
    wire = Wire(ServerLimits(keep_alive_s=75), answer=hello).feed(GET)
    wire.clock.advance(74)
    assert not wire.transport.is_closing()
    wire.feed(GET)
    wire.clock.advance(74)
    assert not wire.transport.is_closing()
    wire.clock.advance(2)
    assert wire.transport.is_closing()


def test_a_handler_may_take_forever() -> None:
    wire = Wire().feed(GET)
    wire.clock.advance(1e6)
    assert not wire.transport.is_closing()
    wire.one.respond(200, [], b"")
    assert wire.transport.sent


# -- draining


def test_draining_closes_an_idle_connection_at_once() -> None:
    wire = Wire(answer=hello).feed(GET)
    wire.connection.drain()
    assert wire.transport.closed


def test_draining_lets_the_running_answer_end() -> None:
    wire = Wire().feed(GET)
    wire.connection.drain()
    assert not wire.transport.closed
    wire.one.start(200, [])
    wire.one.finish(b"x")
    assert b"connection: close\r\n" in wire.transport.sent
    assert wire.transport.closed


def test_draining_amid_a_stream_and_amid_a_request() -> None:
    wire = Wire().feed(GET)
    wire.one.start(200, [])
    wire.one.write(b"x")
    wire.connection.drain()
    wire.one.finish()
    assert wire.transport.closed
    wire = Wire().feed(GET[:-2])
    wire.connection.drain()
    wire.feed(GET[-2:])
    wire.one.respond(200, [], b"x")
    assert b"connection: close" in wire.transport.sent
    assert wire.transport.closed
