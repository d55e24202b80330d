"""Verification reports every counter that differs from the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import SqlStore
from tests.serve.stores.samples import NOON, a_surface, an_event, feedback_on


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(str(tmp_path / "store.db"))
    opened.save_surface(a_surface(), [], [])
    opened.apply_feedback([feedback_on(number, number % 8) for number in range(1, 40)], NOON)
    opened.save_events([an_event(99)])
    yield opened
    opened.close()


def test_a_sound_store_is_clean(store: SqlStore) -> None:
    found = verify(store)
    assert found.clean
    assert (found.events, found.segments, found.adjustments, found.differences) == (39, 2, 0, ())
    assert found.counters > 50


@pytest.mark.parametrize(
    ("damage", "counter"),
    [
        ("UPDATE counters SET loss = loss + 1 WHERE segment = 'phone' AND item = 2 AND slot = 1", "loss"),
        ("UPDATE counters SET shown = shown - 1 WHERE segment = 'phone' AND item = 2 AND slot = 1", "shown"),
        ("UPDATE counters SET clicked = 99 WHERE segment = 'phone' AND item = 2 AND slot = 1", "clicked"),
        ("UPDATE segments SET rounds = rounds + 1 WHERE segment = 'phone'", "rounds"),
    ],
)
def test_a_wrong_counter_is_reported(store: SqlStore, damage: str, counter: str) -> None:
    store.database.write(lambda session: session.run(damage))
    (difference,) = verify(store).differences
    assert difference.counter == counter
    assert difference.segment == "phone"
    assert "surface 'home', segment 'phone'" in str(difference)


@pytest.mark.parametrize(
    "damage", ["DELETE FROM segments", "DELETE FROM counters", "DELETE FROM events WHERE clicks = 3"]
)
def test_missing_rows_are_reported(store: SqlStore, damage: str) -> None:
    store.database.write(lambda session: session.run(damage))
    assert not verify(store).clean
