"""Stores to test: an empty SQLite file, and an empty schema of a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bothworlds.serve.stores import Store, open_store
from tests.serve.postgres_server import PostgresServer

# For the contract, and for what is different in every database.
on_both = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(params=("sqlite", pytest.param("postgres", marks=pytest.mark.nightly)))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made; with the mark ``on_both``, on PostgreSQL in every run."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh_address()


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    opened = open_store(place)
    yield opened
    opened.close()
