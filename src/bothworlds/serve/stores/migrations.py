"""Migrations of the schema: a store of an earlier version is upgraded in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from statistics import median_low

import msgspec

from ..model import Adjustment, Cell, Increments, Segment, Surface, now_ms
from ..time_blocks import TimeBlock, cells_from, second_of
from .base import StoreError
from .batch_totals import BatchTotals
from .database import Session
from .rows import EVENT_COLUMNS, batches, event_of
from .sql_blocks import insert_blocks
from .sql_metadata import add_history, take_numbers
from .sql_surfaces import add_adjustments, read_segments, read_surfaces

__all__ = ["SCHEMA_VERSION", "check_version", "upgrade", "versions_of"]

SCHEMA_VERSION = 6


def versions_of(dialect: str) -> dict[int, str]:
    """Returns the SQL of every schema version of a dialect, from its file.

    >>> sorted(versions_of("sqlite")) == sorted(versions_of("postgres")) == list(range(1, SCHEMA_VERSION + 1))
    True
    """
    text = resources.files(__package__).joinpath(f"{dialect}.sql").read_text(encoding="utf-8")
    steps = text.split("-- version ")[1:]
    return {int(step.split(maxsplit=1)[0].rstrip(":")): "-- " + step for step in steps}


def check_version(session: Session, place: str) -> None:
    """Raises StoreError if there is no store, or if it must be upgraded before it can be read."""
    found = schema_version(session, place)
    if found == 0:
        raise StoreError(f"there is no store at {place}: check the path")
    if found < SCHEMA_VERSION:
        raise StoreError(f"{place} was written by an older version of bothworlds: start the service once to upgrade it")


def upgrade(session: Session, dialect: str, place: str) -> None:
    """Upgrades the schema; all steps run in the transaction of this session. Raises StoreError if it is too new."""
    found = schema_version(session, place)
    missing = {version: sql for version, sql in sorted(versions_of(dialect).items()) if version > found}
    for sql in missing.values():
        session.script(sql)
    for version in missing:
        for migrate in DATA_MIGRATIONS.get(version, ()):
            migrate(session)
    if found < SCHEMA_VERSION:
        session.run("DELETE FROM facts WHERE key = 'schema_version'")
        session.run("INSERT INTO facts VALUES ('schema_version', ?)", (str(SCHEMA_VERSION).encode(),))


def schema_version(session: Session, place: str) -> int:
    """Returns the version of the stored schema; 0 if there is none."""
    if not session.has_table("facts"):
        return 0
    rows = session.run("SELECT value FROM facts WHERE key = 'schema_version'")
    if not rows:
        raise StoreError(f"{place} holds tables of another program: choose another path for the store")
    found = int(bytes(rows[0][0]))
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"{place} was written by a newer version of bothworlds (schema {found}, this one knows {SCHEMA_VERSION}): "
            "install that version or a later one"
        )
    return found


def _fill_history(session: Session) -> None:
    for events in batches(map(event_of, session.stream(f"SELECT {EVENT_COLUMNS} FROM events")), 10_000):
        totals = BatchTotals()
        for event in events:
            totals.count_decision(event)
            if event.settled_at is not None:
                totals.count_outcome(None, event)
        add_history(session, totals)


def _uncount_imports(session: Session) -> None:
    """Removes imported events from the totals per minute: up to version 5 they were counted as pages of their arms."""
    imported = session.stream(f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_by = 'import'")
    for events in batches(map(event_of, imported), 10_000):
        totals = BatchTotals()
        for event in events:
            totals.count_decision(event)
            totals.count_outcome(None, event)
        for sums in totals.history.values():
            sums[:] = [-value for value in sums]
        add_history(session, totals)


SLOTS = 50  # the maximum of a surface
ABSENCE_FACTS = "standing without "  # prefix of the fact on an absent item: "standing without SURFACE/INDEX"

Losses = dict[str, list[int]]  # segment -> loss per slot


def _charge_absent_items(session: Session) -> None:
    """Charges paused and removed items for their absence until now; from version 4 on, events do this.

    Up to version 3, a fact stored the median loss and the item's own loss at the time when it was paused or removed.
    When the item came back, it was charged the growth of the median, minus what it had been charged since.
    """
    now = now_ms()
    for surface in read_surfaces(session):
        segments = read_segments(session, surface.id)
        for item in surface.items:
            if item.state != "active":
                charges = _charges(session, surface, item.index, segments)
                add_adjustments(session, [_adjustment(surface.id, item.index, *charge, now) for charge in charges])
    session.run("DELETE FROM facts WHERE key LIKE ?", (f"{ABSENCE_FACTS}%",))


def _charges(session: Session, surface: Surface, index: int, segments: list[Segment]) -> list[tuple[str, list[int]]]:
    rows = session.run("SELECT value FROM facts WHERE key = ?", (f"{ABSENCE_FACTS}{surface.id}/{index}",))
    stored = msgspec.msgpack.decode(bytes(rows[0][0]), type=tuple[Losses, Losses]) if rows else ({}, {})
    active = [item.index for item in surface.items if item.state == "active"]
    charges = []
    for segment in segments:
        median = [median_low(segment.loss.get((i, slot), 0) for i in active) for slot in range(SLOTS)]
        own = [segment.loss.get((index, slot), 0) for slot in range(SLOTS)]
        median_then, own_then = (losses.get(segment.name, [0] * SLOTS) for losses in stored)
        growth = [max(0, after - before) for after, before in zip(median, median_then)]
        loss = [g - (after - before) for g, after, before in zip(growth, own, own_then)]
        if any(loss):
            charges.append((segment.name, loss))
    return charges


def _adjustment(surface_id: int, index: int, segment: str, loss: list[int], now: int) -> Adjustment:
    cells = tuple(Cell(index, slot, loss=charge) for slot, charge in enumerate(loss) if charge)
    increments = Increments(surface_id=surface_id, segment=segment, rounds=0, cells=cells)
    return Adjustment(increments=increments, at=now, actor="upgrade", reason="median growth until the upgrade")


def _fill_blocks(session: Session) -> None:
    """Makes one block of all that has been counted in each segment, up to the cut: a second after everything logged.

    The log is not read: it may be long, and one block says the same about the past.
    """
    surfaces = read_surfaces(session)
    if not surfaces:  # a new store
        return
    # One surface after the other, by the index on surfaces and times.
    times = [session.run("SELECT max(created_at) FROM events WHERE surface_id = ?", (one.id,)) for one in surfaces]
    times.append(session.run("SELECT max(at) FROM adjustments"))
    cut = second_of(max(now_ms(), *(rows[0][0] or 0 for rows in times))) + 1
    session.run("UPDATE numbers SET value = ? WHERE name = 'cut'", (cut,))
    session.run("DELETE FROM blocks")  # of adjustments that earlier steps of this upgrade made
    revision = take_numbers(session, "revision", 1)
    for surface in surfaces:
        for segment in read_segments(session, surface.id):
            cells = {key: (segment.loss[key], segment.shown[key], segment.clicked[key]) for key in segment.loss}
            block = TimeBlock(0, cut, segment.rounds, cells_from(cells))
            if block.rounds or block.cells.size:
                insert_blocks(session, surface.id, segment.name, [block], revision)


# Run after the SQL of all versions has created the tables.
DATA_MIGRATIONS: dict[int, tuple[Callable[[Session], None], ...]] = {
    2: (_fill_history,),
    4: (_charge_absent_items,),
    5: (_fill_blocks,),
    6: (_uncount_imports,),
}
