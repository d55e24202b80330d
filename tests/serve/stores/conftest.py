"""Stores to test: an empty SQLite file, and an empty schema of a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import SqlStore
from tests.serve.postgres_server import PostgresServer

DATABASES = ("sqlite", "postgres")
# For the contract, and for what is different in every database.
on_both = pytest.mark.parametrize("place", DATABASES, indirect=True)


def fresh_place(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if database == "sqlite":
        return str(tmp_path / "store.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh_address()


@pytest.fixture(params=("sqlite", pytest.param("postgres", marks=pytest.mark.nightly)))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made; with the mark ``on_both``, on PostgreSQL in every run."""
    return fresh_place(request.param, tmp_path, request)


@pytest.fixture
def store(place: str) -> Iterator[SqlStore]:
    opened = open_store(place)
    yield opened
    opened.close()
