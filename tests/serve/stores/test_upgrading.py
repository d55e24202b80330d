"""Stores of another schema: older ones are upgraded, newer ones refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest

from bothworlds.serve.stores import database
from bothworlds.serve.stores.base import StoreError
from bothworlds.serve.stores.opening import open_store
from bothworlds.serve.verifying import verify

from .contract import counted, counters
from .samples import NOON, a_report, a_surface, an_event


def write_version_1(place: str) -> None:
    """Make a store as version 1 of the schema had it, from frozen SQL."""
    dialect = "postgres" if place.startswith("postgres") else "sqlite"
    sql = Path(__file__).with_name(f"version1.{dialect}.sql").read_text(encoding="utf-8")
    if dialect == "postgres":
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(sql)
    else:
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(sql)


def test_a_store_of_the_previous_schema_opens_with_all_that_is_in_it(place: str) -> None:
    write_version_1(place)
    store = open_store(place)
    assert store.get("schema_version") == str(database.SCHEMA_VERSION).encode()
    assert store.get("draw key") == b"\x00\x01key"
    assert [surface.name for surface in store.surfaces()] == ["home"]
    assert (store.open_events(), len(list(store.settled()))) == (3, 12)
    history = store.history(1, NOON, NOON + 60_000, 60_000)
    assert (sum(row["events"] for row in history), sum(row["settled"] for row in history)) == (15, 12)
    assert sum(row["clicks"] for row in history) == sum(event.clicks.bit_count() for event in store.settled())
    assert verify(store).clean
    assert verify(store).adjustments == 1
    assert store.report([a_report(13, 1), a_report(1), a_report(20)], NOON) == ["accepted", "duplicate", "accepted"]
    assert store.audit(1, 5)[0]["action"] == "created"
    assert all(event.pinned == (0b111 & ~event.learn if event.learn else 0) for event in store.events(1, 0, NOON + 19))
    assert verify(store).clean
    store.close()
    open_store(place).close()


def test_an_upgrade_that_fails_changes_nothing(place: str) -> None:
    write_version_1(place)
    broken = {2: (lambda session: session.run("SELECT * FROM nowhere"),)}
    with patch.object(database, "_AFTER", broken), pytest.raises((StoreError, psycopg.Error)):
        open_store(place)
    store = open_store(place)
    assert verify(store).clean
    assert store.history(1, NOON, NOON + 60_000, 60_000)
    store.close()


def test_a_store_of_a_later_schema_is_refused(place: str) -> None:
    store = open_store(place)
    store.put("schema_version", b"999")
    store.close()
    with pytest.raises(StoreError, match=r"newer version of bothworlds .* install that version or a later one"):
        open_store(place)


def test_a_new_store_is_at_the_current_version_and_empty(place: str) -> None:
    store = open_store(place)
    assert store.is_empty()
    assert store.get("schema_version") == str(database.SCHEMA_VERSION).encode()
    store.save_surface(a_surface(), [], [])
    store.remember([an_event(1)])
    assert not store.is_empty()
    assert counters(store) == counted([])
    store.close()
