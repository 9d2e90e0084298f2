"""A PostgreSQL store for one test at a time, quicker than a database of its own: made once, emptied before each test."""

from __future__ import annotations

import pytest

from strom.stores.options import StoreOptions
from strom.stores.table import prepared
from strom.stores.urls import parse_store_url


@pytest.fixture(scope="session")
def _made_once(postgres_url: str) -> str:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE stores")
    url = postgres_url.rpartition("/")[0] + "/stores"
    prepared(parse_store_url(url), StoreOptions())
    return url


@pytest.fixture
def postgres_store(_made_once: str) -> str:
    """The URL of a store with this version's schema and nothing in it."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(_made_once, autocommit=True) as connection:
        for table in ("calls", "responses", "response_items", "response_events"):
            connection.execute(f"DELETE FROM {table}")
    return _made_once
