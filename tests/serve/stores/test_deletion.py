"""Deleting events, segments and surfaces: counters stay exact, and a signed checkpoint stands in for what is gone."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bothworlds.serve.checkpoints import Checkpoint, checkpoint_key, opened, signed
from bothworlds.serve.engine import surface_rules
from bothworlds.serve.model import DRAW_KEY, Adjustment, Segment, Surface, VerifiedFeedback, counter_key
from bothworlds.serve.ops.migrate import migrate
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.prediction_versions import PredictionVersion
from bothworlds.serve.stores.base import StoreError, VersionConflict
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import TABLES, SqlStore
from bothworlds.serve.time_blocks import max_blocks

from .contract import counters
from .samples import ITEMS, LATE, NOON, SLOTS, WINDOW, a_surface, an_event, feedback_on

EVENTS = 60
AFTER = NOON + EVENTS + WINDOW + LATE + 1  # all late windows have ended
DAY = 86_400_000


def key_of(store: SqlStore) -> bytes:
    return checkpoint_key(store.get(DRAW_KEY) or b"")


def number(event_id: bytes) -> int:
    return int.from_bytes(event_id, "big")


def ids(*numbers: int) -> list[bytes]:
    return [n.to_bytes(16, "big") for n in numbers]


def deleted(store: SqlStore, *numbers: int, now: int = NOON) -> int:
    entry = {"at": now, "actor": "ann", "action": "delete event", "detail": "", "surface_id": 1}
    return store.delete_events(ids(*numbers), now, key_of(store), lambda found: [entry])


def aged(store: SqlStore, limit: int = 1000, before: int = AFTER + DAY, late_before: int = AFTER) -> int:
    return store.delete_old_events(1, before, late_before, limit, AFTER, key_of(store), lambda count: [])


@pytest.fixture
def filled(store: SqlStore) -> SqlStore:
    """A store with settled events 1 to 59 and the open event 99."""
    fill(store)
    return store


@pytest.fixture
def local(tmp_path: Path) -> Iterator[SqlStore]:
    """The same on SQLite, for what does not depend on the database."""
    opened = open_store(str(tmp_path / "store.db"))
    fill(opened)
    yield opened
    opened.close()


def fill(store: SqlStore) -> None:
    store.put(DRAW_KEY, bytes(range(32)))
    store.save_surface(structs.replace(a_surface(), n_learners=2), [], [])
    store.apply_feedback([feedback_on(n, n % 8) for n in range(1, EVENTS)], NOON)
    store.save_events([an_event(99)])
    assert verify(store).clean


@pytest.mark.slow
def test_a_deleted_event_is_gone_and_stays_counted(filled: SqlStore) -> None:
    before = counters(filled)
    assert deleted(filled, 1, 7, 8, 77) == 3  # 7 is of the holdout; 77 does not exist
    assert filled.find_events(ids(1, 7, 8)) == {}
    assert counters(filled) == before
    assert filled.audit(1, 1)[0]["action"] == "delete event"
    found = verify(filled)
    assert (found.clean, found.events, found.deleted) == (True, EVENTS - 4, 3)
    assert filled.deleted(1).events == 3
    assert filled.deleted_ids(ids(1, 2)) == set(ids(1))
    assert deleted(filled, 1) == 0


def test_a_deleted_event_does_not_come_back(filled: SqlStore) -> None:
    deleted(filled, 1, 2)
    before, history = counters(filled), filled.history(1, 0, 2 * NOON, NOON)
    feedback = [feedback_on(1, 7), feedback_on(3, 3), feedback_on(2, 0)]
    assert filled.apply_feedback(feedback, NOON) == ["rejected", "duplicate", "rejected"]
    assert [event and event.id for event in filled.save_events([an_event(1), an_event(2)])] == ids(1, 2)
    settled = structs.replace(an_event(1), settled_at=NOON, settled_by="import")
    assert filled.import_events([settled]) == 0
    assert filled.find_events(ids(1, 2)) == {}
    assert (counters(filled), filled.history(1, 0, 2 * NOON, NOON)) == (before, history)
    assert verify(filled).clean


def test_an_open_event_is_deleted_without_being_learned_from(filled: SqlStore) -> None:
    before = counters(filled)
    outstanding = sum(row["events"] - row["settled"] for row in filled.history(1, 0, 2 * NOON, NOON))
    assert outstanding == filled.open_events() == 1
    assert deleted(filled, 99) == 1
    assert filled.open_events() == 0
    assert sum(row["events"] - row["settled"] for row in filled.history(1, 0, 2 * NOON, NOON)) == 0
    assert filled.settle_overdue(AFTER, 10) == 0
    assert counters(filled) == before
    assert list(filled.checkpoints()) == []
    assert verify(filled).clean


@pytest.mark.parametrize("event", [1, 7])  # of the learner, of the holdout
def test_a_row_that_is_deleted_behind_the_services_back_is_found(local: SqlStore, event: int) -> None:
    deleted(local, 2, 14)
    local.database.write(lambda session: session.run("DELETE FROM events WHERE id = ?", ids(event)))
    assert not verify(local).clean


@pytest.mark.parametrize("column", ["body", "signature", "until", "segment"])
def test_a_checkpoint_that_was_changed_is_found(local: SqlStore, column: str) -> None:
    deleted(local, 1, 2)
    assert verify(local).clean
    (stored, *_) = local.checkpoints(1)
    other: object = {
        "body": stored.body[:-1] + b"\x09",
        "signature": bytes(32),
        "until": stored.until + 1,
        "segment": "x",
    }[column]
    values = (other, stored.segment, stored.start)
    sql = f"UPDATE checkpoints SET {column} = ? WHERE segment = ? AND start = ?"
    local.database.write(lambda session: session.run(sql, values))
    found = verify(local)
    assert not found.clean
    assert len(found.forged) == 1
    assert "surface 'home'" in found.forged[0]
    # Deleting more would sign the change.
    before = counters(local)
    if column != "segment":
        with pytest.raises(StoreError, match="not as it was signed"):
            deleted(local, 3, 4)
        assert len(local.find_events(ids(3, 4))) == 2
    assert counters(local) == before


def test_sums_that_agree_are_not_enough_without_the_signature(local: SqlStore) -> None:
    """Somebody adds a click to a counter and to the checkpoint, but does not know the key."""
    deleted(local, 1)
    (stored,) = local.checkpoints(1)
    content = opened(stored)
    cells = content.sums.cells.copy()
    cells[0, 4] += 1
    item, slot = (int(value) for value in cells[0, :2])
    forged = signed(Checkpoint(1, "phone", content.sums._replace(cells=cells), content.pages), b"another key")

    def change(session):  # type: ignore[no-untyped-def]
        session.run("UPDATE checkpoints SET body = ?, signature = ?", (forged.body, forged.signature))
        where = "surface_id = 1 AND segment = 'phone' AND item = ? AND slot = ?"
        session.run(f"UPDATE counters SET clicked = clicked + 1 WHERE {where}", (item, slot))

    local.database.write(change)
    found = verify(local)
    assert len(found.forged) == 1
    assert all(difference.block for difference in found.differences)  # the counters of the segment agree


def test_a_checkpoint_that_is_missing_is_found(local: SqlStore) -> None:
    deleted(local, 7)  # of the holdout: no counter has it
    local.database.write(lambda session: session.run("DELETE FROM checkpoints"))
    (difference,) = verify(local).differences
    assert (difference.counter, difference.stored, difference.rebuilt) == ("pages of holdout", 4, 3)


@pytest.mark.slow
def test_old_events_are_deleted_in_batches_once_nothing_can_change_them(filled: SqlStore) -> None:
    before = counters(filled)
    assert aged(filled, late_before=NOON) == 0  # clicks may still come
    assert aged(filled, before=NOON) == 0
    assert aged(filled, limit=20) == 20
    assert sorted(number(event.id) for event in filled.settled()) == list(range(21, EVENTS))  # the oldest first
    assert verify(filled).clean
    assert aged(filled) == EVENTS - 21
    assert aged(filled) == 0
    assert [number(event.id) for event in filled.events(1, 0, 2 * NOON)] == [99]  # open: settled at its deadline
    assert (filled.deleted(1).events, filled.deleted(1).until) == (EVENTS - 1, NOON + EVENTS - 1)
    assert counters(filled) == before
    assert verify(filled).deleted == EVENTS - 1
    assert filled.apply_feedback([feedback_on(1, 7)], AFTER) == ["expired"]
    assert verify(filled).clean


def test_retention_that_ignores_the_late_window_would_count_twice(local: SqlStore) -> None:
    """The ids of old events are not remembered, so that only the end of the late window keeps their tokens out."""
    before = counters(local)
    assert aged(local, late_before=2 * NOON) == EVENTS - 1
    assert local.apply_feedback([feedback_on(1, 7)], NOON) == ["accepted"]
    assert counters(local) != before


def test_ids_of_deleted_events_are_forgotten_with_events_of_their_age(local: SqlStore) -> None:
    deleted(local, 3, 50)
    aged(local, limit=10)
    assert local.deleted_ids(ids(3, 50)) == set(ids(50))


def first_reset(surface: Surface, now: int, found: list[Segment]) -> tuple[Adjustment, ...]:
    return surface_rules.reset_adjustments(surface, found[:1], now, "ann")


@pytest.mark.slow
def test_checkpoints_agree_with_blocks_of_any_age(store: SqlStore) -> None:
    """Events of a year, deleted in any order between compactions, resets and a boundary."""
    store.put(DRAW_KEY, bytes(32))
    store.save_surface(a_surface(), [], [])
    chance = random.Random(4)
    now, step = NOON, 10 * DAY
    for k in range(36):
        numbers = range(100 * k, 100 * k + 30)
        made = [an_event(n, created_at=now + 977_777 * (n % 30), expires_at=now, late_until=now) for n in numbers]
        events = [structs.replace(e, expires_at=e.created_at, late_until=e.created_at) for e in made]
        store.apply_feedback([VerifiedFeedback(event=e, clicks=n % 8, final=True) for n, e in enumerate(events)], now)
        now += step
        if k % 5 == 3:
            store.compact(1, "", now)
        if k == 12:
            store.adjust_by(1, partial(first_reset, store.surfaces()[0], now), [])
        if k == 20:
            assert store.set_number(1, "phone", "change", now // 1000 - 300_000, expected=None)
        present = [number(event.id) for event in store.settled()]
        assert deleted(store, *chance.sample(present, 5), now=now) == 5
        store.delete_old_events(1, now - 9 * step, now, 100, now, key_of(store), lambda count: [])
    found = verify(store)
    assert (found.clean, found.events + found.deleted) == (True, 36 * 30)
    assert found.deleted > 700
    assert found.checkpoints <= 2 * 2 * max_blocks(37 * 10 * 86_400)


def test_a_copy_of_the_store_has_its_checkpoints(local: SqlStore, tmp_path: Path) -> None:
    deleted(local, 1, 2, 99)
    target = open_store(str(tmp_path / "copy.db"))
    migration = migrate(local, target)
    assert migration.target.clean
    assert (verify(target).deleted, verify(target).clean) == (2, True)
    assert target.apply_feedback([feedback_on(1)], NOON) == ["rejected"]
    target.close()


# Surfaces and segments


def rows_about(store: SqlStore, surface_id: int, segment: str | None = None) -> dict[str, int]:
    """The number of rows of a surface or segment by table, except for the audit log."""
    with store.database.reading() as session:
        found = {}
        for table in TABLES:
            columns = set(session.columns(table))
            if table == "audit" or "surface_id" not in columns or (segment is not None and "segment" not in columns):
                continue
            where, values = "surface_id = ?", [surface_id]
            if segment is not None:
                keys = [segment, counter_key(segment, 1)]
                where, values = f"{where} AND segment IN (?, ?)", [surface_id, *keys]  # type: ignore[list-item]
            found[table] = session.run(f"SELECT count(*) FROM {table} WHERE {where}", values)[0][0]
        found["facts"] = len(session.run("SELECT 1 FROM facts WHERE key LIKE ?", (f"% {surface_id}%",)))
        found["surfaces"] = len(session.run("SELECT 1 FROM surfaces WHERE id = ?", (surface_id,)))
    return {table: count for table, count in found.items() if count}


def crowded(store: SqlStore) -> None:
    """Gives surface 1 rows in every table, and makes a surface 2 that must not change."""
    surface = store.surfaces()[0]
    store.save_surface(a_surface("other"), [], [])
    store.apply_feedback([feedback_on(1000 + n, 1, surface_id=2) for n in range(10)], NOON)
    store.adjust_by(1, lambda found: surface_rules.reset_adjustments(surface, found, NOON, "ann"), [])
    store.apply_feedback([feedback_on(n, n % 8) for n in range(200, 240)], NOON)
    for n, segment in ((240, ""), (241, "phone")):  # with a visitor, and of another learner
        event = structs.replace(an_event(n), segment=segment, visitor=b"v" * 16, learner=1)
        store.apply_feedback([VerifiedFeedback(event=event, clicks=1, final=True)], NOON)
    for segment in ("", "phone"):
        version = PredictionVersion(NOON, 1, 2, None, "ftrl-va", SLOTS, zlib.compress(bytes(ITEMS * SLOTS)))
        assert store.save_prediction_version(1, segment, version, expected=None, unused_before=0)
    deleted(store, 200, 201)
    for segment in ("", "phone"):
        store.save_policy(f"p{segment}", 1, segment, NOON, b"")
        store.set_number(1, segment, "wake", 5, expected=None)
    for fact in ("guard 1 123", "sample ratio 1", "segment uses 1"):
        store.put(fact, b"x")
    assert verify(store).clean


@pytest.mark.slow
def test_a_deleted_surface_leaves_nothing_but_its_audit_log(filled: SqlStore) -> None:
    crowded(filled)
    other = rows_about(filled, 2)
    filled.database.write(lambda session: session.run("INSERT INTO deleted_segments VALUES (1, 'x', 0)"))
    assert rows_about(filled, 1).keys() == {*TABLES} - {"numbers", "audit", "api_keys"}
    surface = filled.surfaces()[0]
    with pytest.raises(VersionConflict):
        filled.delete_surface(structs.replace(surface, version=7), lambda events: [])
    revision = filled.revision()
    filled.delete_surface(
        surface, lambda events: [{"action": "delete surface", "detail": f"{events}", "surface_id": 1}]
    )
    assert filled.revision() > revision
    assert rows_about(filled, 1) == {}
    assert rows_about(filled, 2) == other
    assert filled.audit(1, 1)[0]["detail"] == "100"
    assert verify(filled).clean
    # Tokens and decisions of the deleted surface.
    assert filled.apply_feedback([feedback_on(1), feedback_on(1000, surface_id=2)], NOON) == ["rejected", "duplicate"]
    assert filled.save_events([an_event(500)]) == [None]
    assert not filled.admit_segment(1, "new", 10)
    assert not filled.set_number(1, "", "wake", 5, expected=None)
    version = PredictionVersion(NOON, 1, 2, None, "ftrl-va", SLOTS, zlib.compress(bytes(ITEMS * SLOTS)))
    assert not filled.save_prediction_version(1, "", version, expected=None, unused_before=0)
    filled.save_policy("late", 1, "", NOON, b"")
    assert rows_about(filled, 1) == {}
    # The name can be used again, for another number.
    again = filled.save_surface(a_surface(), [], [])
    assert again.id == 3
    assert filled.segments(again.id) == []
    assert verify(filled).clean


@pytest.mark.slow
def test_a_deleted_segment_leaves_nothing_but_the_time_of_its_deletion(filled: SqlStore) -> None:
    crowded(filled)
    kept = rows_about(filled, 1, "")
    entry = {"action": "delete segment", "detail": "", "surface_id": 1}
    assert filled.purge_segment(1, "phone", NOON + 400, lambda segment, events: [entry | {"detail": f"{events}"}])
    assert rows_about(filled, 1, "phone") == {"deleted_segments": 1, "facts": 4, "surfaces": 1}
    assert rows_about(filled, 1, "") == kept
    assert not filled.purge_segment(1, "phone", NOON, lambda segment, events: [])
    assert filled.audit(1, 1)[0]["action"] == "delete segment"
    assert verify(filled).clean
    # Tokens and decisions from before, known or not, are not stored; those from after are.
    assert filled.apply_feedback([feedback_on(1, 1), feedback_on(301)], NOON) == ["expired", "expired"]
    filled.save_events([an_event(303)])
    late = NOON + 1000
    new = an_event(305, created_at=late, expires_at=late + WINDOW, late_until=late + LATE)
    assert filled.apply_feedback([VerifiedFeedback(event=new, clicks=1, final=True)], late) == ["accepted"]
    assert rows_about(filled, 1, "phone")["events"] == 1
    assert filled.import_events([structs.replace(an_event(307), settled_at=NOON, settled_by="import")]) == 1
    assert verify(filled).clean


@pytest.mark.slow
def test_a_deleted_segment_takes_the_resets_of_all_learners_with_it(filled: SqlStore) -> None:
    """The counters of a learner may have expired: no row of ``segments`` has them, but resets and checkpoints do."""
    key, surface = counter_key("phone", 1), filled.surfaces()[0]
    events = [an_event(n, segment="phone", learner=1, arm="new", learn=7) for n in range(300, 310)]
    filled.apply_feedback([VerifiedFeedback(event=event, clicks=1, final=True) for event in events], NOON)
    deleted(filled, 300, 301)
    filled.delete_segments(
        1, {key: None, "phone": None}, lambda found: (surface_rules.reset_adjustments(surface, found, NOON, "x"), [])
    )
    assert key not in filled.segment_names(1)
    assert filled.admit_segment(1, "phone", 10)  # it is used again
    assert verify(filled).clean
    assert filled.purge_segment(1, "phone", NOON + 400, lambda found, events: [])
    assert rows_about(filled, 1, "phone").keys() == {"deleted_segments", "facts", "surfaces"}
    assert verify(filled).clean


# kill -9


def delete_until_killed(place: str, torn: bool, started: Any) -> None:
    """Deletes one event after the other; a torn deletion takes two transactions, which must be detected."""
    store = open_store(place)
    started.set()
    for event in list(store.settled()):
        if torn:
            store.database.write(lambda session, id=event.id: session.run("DELETE FROM events WHERE id = ?", (id,)))
            time.sleep(0.01)
        else:
            store.delete_events([event.id], NOON, key_of(store), lambda found: [])


def killed_while_deleting(place: str, torn: bool) -> list[bool]:
    """Kills a process that deletes, several times; returns whether the store was clean after each kill."""
    store = open_store(place)
    fill(store)
    store.close()
    chance, clean, rows, fork = random.Random(1), [], EVENTS - 1, multiprocessing.get_context("fork")
    while rows > 0 and (len(clean) < 6 or rows == EVENTS - 1):
        started = fork.Event()
        child = fork.Process(target=delete_until_killed, args=(place, torn, started))
        child.start()
        assert started.wait(60)
        time.sleep(chance.uniform(0.0, 0.05))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        store = open_store(place)
        found = verify(store)
        clean.append(found.clean and found.events + found.deleted == EVENTS - 1)
        rows = found.events
        store.close()
    assert rows < EVENTS - 1
    return clean


@pytest.mark.slow
def test_kill_9_leaves_either_the_row_or_the_checkpoint(place: str) -> None:
    assert all(killed_while_deleting(place, torn=False))


@pytest.mark.slow
def test_a_deletion_in_two_transactions_is_caught(tmp_path: Path) -> None:
    assert not all(killed_while_deleting(str(tmp_path / "store.db"), torn=True))


# Concurrent writers


@pytest.mark.slow
def test_nothing_of_a_surface_is_left_if_it_is_deleted_under_load(filled: SqlStore) -> None:
    """Decisions, feedback, settling, policies and segments arrive until the surface is gone, and after."""
    filled.save_surface(a_surface("other"), [], [])
    stop, failures, started = threading.Event(), [], threading.Barrier(4)

    def load(first: int) -> None:
        number = first
        started.wait()
        while not stop.is_set():
            try:
                filled.save_events([an_event(n, 1 + n % 2) for n in range(number, number + 8)])
                batch = [feedback_on(n, n % 8, surface_id=1 + n % 2) for n in range(number, number + 12)]
                filled.apply_feedback(batch, NOON)
                filled.settle_overdue(AFTER, 20)
                filled.save_policy(f"p{number}", 1, "", NOON + number, b"")
                filled.admit_segment(1, f"s{number % 20}", 30)
                filled.set_number(1, "", f"n{number}", 1, expected=None)
            except StoreError as error:
                failures.append(error)
            number += 12

    threads = [threading.Thread(target=load, args=(10_000 * k,)) for k in range(1, 4)]
    for thread in threads:
        thread.start()
    started.wait()
    time.sleep(0.1)
    filled.delete_surface(filled.surfaces()[0], lambda events: [])
    time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows_about(filled, 1) == {}
    assert rows_about(filled, 2)["events"] > 0
    assert verify(filled).clean


@pytest.mark.slow
def test_each_event_is_counted_once_though_it_is_deleted_while_clicks_arrive(filled: SqlStore) -> None:
    numbers = range(1000, 1200)
    filled.save_events([an_event(n) for n in numbers])
    rejected: set[int] = set()

    def click() -> None:
        for n in numbers:
            if "rejected" in filled.apply_feedback([feedback_on(n, 1), feedback_on(n, 2)], NOON):
                rejected.add(n)

    threads = [threading.Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    gone = sum(deleted(filled, *range(n, n + 5)) for n in range(1000, 1200, 10))
    for thread in threads:
        thread.join()
    assert gone == 100
    assert not filled.deleted_ids(ids(*numbers)) - set(ids(*(n for n in numbers if n % 10 < 5)))
    found = verify(filled)
    assert found.clean
    # A deleted event was settled before, and has a checkpoint, or was open, and feedback on it is rejected.
    assert found.events == EVENTS - 1 + 100
    assert found.deleted <= 100
    assert found.deleted + len(rejected) >= 100
