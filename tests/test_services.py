"""The servers that tests get: they answer, they are empty, they stop and come back."""

from __future__ import annotations

import socket

import psycopg
import pytest

from tests.patience import PATIENCE_S
from tests.services import RedisServer, _redis_answers


def test_a_database_is_ones_own(postgres_url: str, postgres_database: str) -> None:
    assert postgres_database != postgres_url
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)


def test_the_password_is_asked_for(postgres_url: str) -> None:
    start, _, rest = postgres_url.partition("@")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(start.rpartition(":")[0] + ":wrong@" + rest)


def test_redis_answers(redis_url: str) -> None:
    assert redis_url.startswith("redis://127.0.0.1:")


def test_redis_stops_pauses_and_comes_back(redis_server: RedisServer) -> None:
    assert _redis_answers(redis_server.port)
    redis_server.pause()
    with socket.create_connection(("127.0.0.1", redis_server.port), timeout=PATIENCE_S) as connection:
        connection.settimeout(0.2)
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(16)
    redis_server.resume()
    redis_server.stop()
    assert not _redis_answers(redis_server.port)
    redis_server.start()
    assert _redis_answers(redis_server.port)
