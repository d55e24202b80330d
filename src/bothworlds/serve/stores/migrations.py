"""Migrations: a store that was written by an earlier version is brought up to date in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from statistics import median_low

import msgspec

from ..ids import now_ms
from ..model import Adjustment, Cell, Increments, Segment, Surface
from .additions import Additions
from .base import StoreError
from .database import Session, add_history
from .rows import EVENT_COLUMNS, batches, event_of
from .sql_surfaces import add_adjustments, read_segments, read_surfaces

__all__ = ["SCHEMA_VERSION", "check_version", "upgrade", "versions_of"]

SCHEMA_VERSION = 4


def versions_of(dialect: str) -> dict[int, str]:
    """The numbered steps of a dialect's schema, from its file of SQL.

    >>> sorted(versions_of("sqlite")) == sorted(versions_of("postgres")) == list(range(1, SCHEMA_VERSION + 1))
    True
    """
    text = resources.files(__package__).joinpath(f"{dialect}.sql").read_text(encoding="utf-8")
    steps = text.split("-- version ")[1:]
    return {int(step.split(maxsplit=1)[0].rstrip(":")): "-- " + step for step in steps}


def check_version(session: Session, place: str) -> None:
    """Refuse what cannot be read without being upgraded."""
    found = schema_version(session, place)
    if found == 0:
        raise StoreError(f"there is no store at {place}: check where it is")
    if found < SCHEMA_VERSION:
        raise StoreError(f"{place} was written by an older version of bothworlds: start the service once to upgrade it")


def upgrade(session: Session, dialect: str, place: str) -> None:
    """Bring the schema up to date, all steps in the transaction of this session."""
    found = schema_version(session, place)
    missing = {version: sql for version, sql in sorted(versions_of(dialect).items()) if version > found}
    for sql in missing.values():
        session.script(sql)
    for version in missing:
        for step in _AFTER.get(version, ()):
            step(session)
    if found < SCHEMA_VERSION:
        session.run("DELETE FROM facts WHERE key = 'schema_version'")
        session.run("INSERT INTO facts VALUES ('schema_version', ?)", (str(SCHEMA_VERSION).encode(),))


def schema_version(session: Session, place: str) -> int:
    """The version of the schema that is there; 0 if there is none."""
    if not session.has_table("facts"):
        return 0
    rows = session.run("SELECT value FROM facts WHERE key = 'schema_version'")
    if not rows:
        raise StoreError(f"{place} holds tables that are not of bothworlds: choose another place for the store")
    found = int(bytes(rows[0][0]))
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"{place} was written by a newer version of bothworlds (schema {found}, this one knows {SCHEMA_VERSION}): "
            "install that version or a later one"
        )
    return found


def _fill_history(session: Session) -> None:
    for events in batches(map(event_of, session.stream(f"SELECT {EVENT_COLUMNS} FROM events")), 10_000):
        additions = Additions()
        for event in events:
            additions.arrived(event)
            if event.settled_at is not None:
                additions.turned(None, event)
        add_history(session, additions)


SLOTS = 50  # of a surface, at most
ABSENCE_NOTES = "standing without "  # key of the note on an item that is away: "standing without SURFACE/INDEX"

Losses = dict[str, list[int]]  # of every segment, slot by slot


def _settle_absences(session: Session) -> None:
    """Charge items that are away for their absence so far; from now on events do that themselves.

    Up to version 3 a note was kept of the median loss and of the item's own loss when it was paused or removed. When it
    came back, it was charged what the median had grown by, less what it had been charged meanwhile.
    """
    now = now_ms()
    for surface in read_surfaces(session):
        segments = read_segments(session, surface.id)
        for item in surface.items:
            if item.state != "active":
                charges = _charges(session, surface, item.index, segments)
                add_adjustments(session, [_adjustment(surface.id, item.index, *charge, now) for charge in charges])
    session.run("DELETE FROM facts WHERE key LIKE ?", (f"{ABSENCE_NOTES}%",))


def _charges(session: Session, surface: Surface, index: int, segments: list[Segment]) -> list[tuple[str, list[int]]]:
    rows = session.run("SELECT value FROM facts WHERE key = ?", (f"{ABSENCE_NOTES}{surface.id}/{index}",))
    noted = msgspec.msgpack.decode(bytes(rows[0][0]), type=tuple[Losses, Losses]) if rows else ({}, {})
    active = [item.index for item in surface.items if item.state == "active"]
    charges = []
    for segment in segments:
        median = [median_low(segment.loss.get((i, slot), 0) for i in active) for slot in range(SLOTS)]
        own = [segment.loss.get((index, slot), 0) for slot in range(SLOTS)]
        median_then, own_then = (losses.get(segment.name, [0] * SLOTS) for losses in noted)
        growth = [max(0, after - before) for after, before in zip(median, median_then)]
        loss = [g - (after - before) for g, after, before in zip(growth, own, own_then)]
        if any(loss):
            charges.append((segment.name, loss))
    return charges


def _adjustment(surface_id: int, index: int, segment: str, loss: list[int], now: int) -> Adjustment:
    cells = tuple(Cell(index, slot, loss=charge) for slot, charge in enumerate(loss) if charge)
    increments = Increments(surface_id=surface_id, segment=segment, rounds=0, cells=cells)
    return Adjustment(increments=increments, at=now, actor="upgrade", reason="median growth until the upgrade")


# What has to be computed once all steps have made their tables.
_AFTER: dict[int, tuple[Callable[[Session], None], ...]] = {2: (_fill_history,), 4: (_settle_absences,)}
