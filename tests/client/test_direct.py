"""Sync streams that read their own socket: new, idle and stale connections, leaving, and bodies larger than a socket takes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import strom
from strom.client import network
from strom.client.lines import Lines
from strom.client.mailbox import LINGER_S
from strom.transport.pool import IDLE_S
from strom.transport.types import Origin
from tests.client.loopback import HEAD, Loopback, framed
from tests.client.rig import DONE, call, content, finish
from tests.patience import PATIENCE_S, wait_until

ANSWER = framed(content("hi")) + framed(finish("stop")) + framed(DONE)
END = b"0\r\n\r\n"


@contextmanager
def server(serve: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """`serve` is called with each connection and its number, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        for number in range(100):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                serve(connection, number)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 20)
    return body


def origin(url: str) -> Origin:
    return Origin("http", "127.0.0.1", int(url.rpartition(":")[2]))


def is_idle(url: str) -> bool:
    """A connection to it waits for the next request."""
    line = network.plain_lines().take(origin(url))
    if line is not None:
        network.plain_lines().put(line, network.background_loop())
    return line is not None


def test_a_connection_serves_again_also_if_its_body_ended_later() -> None:
    served: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        while read_request(connection):
            served.append(number)
            connection.sendall(HEAD + ANSWER)
            time.sleep(0.02)
            connection.sendall(END)

    with server(serve) as url:
        model = strom.Model("m", base_url=url)
        for _ in range(3):
            assert model.complete("x").text == "hi"
            wait_until(lambda: is_idle(url))
    assert served == [0, 0, 0]


def test_a_stale_connection_is_replaced_and_the_request_sent_once() -> None:
    bodies: list[bytes] = []

    def serve(connection: socket.socket, number: int) -> None:
        bodies.append(read_request(connection))
        connection.sendall(HEAD + ANSWER + END)
        if number == 0:  # ends only when the next request has come: the client cannot know before
            connection.recv(1)

    with server(serve) as url:
        model = strom.Model("m", base_url=url)
        assert [model.complete(text).text for text in ("one", "two")] == ["hi", "hi"]
    assert len(bodies) == 2


def test_an_upstream_may_answer_before_it_has_read_a_large_request() -> None:
    release = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        release.wait(PATIENCE_S)

    with server(serve) as url:
        with pytest.raises(strom.StromError) as caught:
            strom.Model("m", base_url=url).complete("x" * 30_000_000)
        release.set()
    assert isinstance(caught.value, strom.StreamFailed)
    assert caught.value.reason == "request_failed"


def test_a_large_request_arrives_whole() -> None:
    sizes: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        time.sleep(0.05)
        sizes.append(len(read_request(connection)))
        connection.sendall(HEAD + ANSWER + END)

    with server(serve) as url:
        assert strom.Model("m", base_url=url).complete("x" * 8_000_000).text == "hi"
    assert sizes[0] > 8_000_000


def test_a_cut_in_the_middle_is_an_incomplete_stream() -> None:
    def serve(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(HEAD + framed(content("hi")))

    with server(serve) as url:
        *_, last = strom.Model("m", base_url=url).stream("x")
    assert isinstance(last, strom.StreamError)
    assert (last.reason, last.metadata.text) == ("incomplete_stream", "hi")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(strom.StreamFailed) as caught:
        strom.Model("m", base_url=url).complete("x")
    assert caught.value.reason == "request_failed"


def test_cancel_while_the_connection_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    port = full.getsockname()[1]
    kept = [socket.socket() for _ in range(4)]  # fill the queue of the listener: further ones wait
    for one in kept:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    stream = strom.Model("m", base_url=f"http://127.0.0.1:{port}").stream("x")
    threading.Timer(0.2, stream.cancel).start()
    started = time.monotonic()
    (event,) = list(stream)
    assert isinstance(event, strom.StreamError)
    assert event.reason == "cancelled"
    assert time.monotonic() - started < PATIENCE_S  # the kernel would go on for two minutes
    for one in (*kept, full):
        one.close()


def test_a_dropped_stream_closes_its_connection(backend: Loopback) -> None:
    model = strom.Model("m", base_url=backend.url)
    stream = model.stream("hang")
    next(stream)
    del stream
    gc.collect()
    wait_until(lambda: backend.open == 0)


def test_cancelling_one_stream_never_disturbs_another(backend: Loopback) -> None:
    """The connection of a finished stream serves the next one at once; a late cancel must not reach it."""
    model = strom.Model("m", base_url=backend.url)
    for _ in range(100):
        first = model.stream("a b c")
        cancel = threading.Thread(target=first.cancel)
        for event in first:
            if isinstance(event, strom.StreamContent) and not cancel.ident:
                cancel.start()
        assert model.complete("d e").text == "d e "
        cancel.join()


def test_idle_lines_are_closed_in_time(backend: Loopback) -> None:
    now = [0.0]
    lines = Lines(clock=lambda: now[0])
    model = strom.Model("m", base_url=backend.url)
    model.complete("a")
    shared = network.plain_lines()
    wait_until(lambda: is_idle(backend.url))  # the body's end
    line = shared.take(origin(backend.url))
    assert line is not None
    loop = network.background_loop()
    lines.put(line, loop)
    assert lines.take(origin(backend.url)) is line
    lines.put(line, loop)
    now[0] = IDLE_S + LINGER_S
    assert lines.take(origin(backend.url)) is None
    wait_until(lambda: line.closed)
    assert len(lines) == 0


def test_the_limit_between_two_frames_holds_in_the_fast_path() -> None:
    def serve(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(HEAD)
        for _ in range(4):
            connection.sendall(framed(content("a")))
            time.sleep(0.05)
        while True:  # comments are no frames
            try:
                connection.sendall(framed(b": ping\n\n"))
            except OSError:
                return
            time.sleep(0.05)

    with server(serve) as url:
        timeouts = strom.Timeouts(first_token_s=PATIENCE_S, idle_s=1)
        with pytest.raises(strom.TimedOut, match="silent") as caught:
            strom.Model("m", base_url=url, timeouts=timeouts).complete("x")
    assert caught.value.metadata.text == "aaaa"  # type: ignore[attr-defined]  # it is a StreamFailed as well


@pytest.mark.parametrize("prompt", ["late", "hang"])
def test_ctrl_c_ends_a_read_and_closes_the_connection(backend: Loopback, prompt: str) -> None:
    stream = strom.Model("m", base_url=backend.url).stream(prompt)

    def interrupt() -> None:
        wait_until(lambda: backend.requests)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.ended
    assert stream.failure is None
    wait_until(lambda: backend.open == 0)


def test_a_read_that_ends_the_turn_is_followed_by_no_other() -> None:
    """The end of one request and its calls may come in one read; the line then stays open, and nothing more comes on it."""

    def serve(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(HEAD + framed(content("Let me ")))
        time.sleep(0.05)
        connection.sendall(framed(content("look.")))
        time.sleep(0.05)
        connection.sendall(framed(call("c1", "look_up", "{}")) + framed(finish("tool_calls")) + framed(DONE) + END)
        read_request(connection)
        connection.sendall(HEAD + ANSWER + END)

    def look_up() -> str:
        """Looks something up."""
        return "found"

    with server(serve) as url:
        started = time.monotonic()
        stream = strom.Model("m", base_url=url).stream("x", tools=[strom.tool(look_up)])
        assert [type(event) for event in stream][-1] is strom.StreamCompleted
        assert time.monotonic() - started < 30  # of the sixty that silence may last


@pytest.mark.parametrize(
    "timeouts", [strom.Timeouts(total_s=0.4), strom.Timeouts(min_chars_per_s=1000, throughput_window_s=0.3)]
)
def test_the_other_clocks_run_in_the_middle_of_an_answer(timeouts: strom.Timeouts) -> None:
    def serve(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(HEAD)
        for _ in range(3):
            connection.sendall(framed(content("a")))
            time.sleep(0.05)
        connection.recv(1)

    with server(serve) as url:
        started = time.monotonic()
        with pytest.raises(strom.TimedOut):
            strom.Model("m", base_url=url, timeouts=timeouts).complete("x")
        assert time.monotonic() - started < 30
