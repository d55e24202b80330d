"""SQL statements on surfaces and their learners.

Every transaction that changes surfaces or learners takes the revision first, so that these follow one another.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..events import Learner
from ..model import Surface
from .database import Row, Session
from .records import take_numbers

FACTS = ("guard", "sample ratio")  # facts on a surface: one of these, and its number

_LEARNER = "id, surface_id, segment, number, used_at, reset_number, erased_number"


class VersionConflict(Exception):
    """The surface was changed since it was read."""


# Surfaces


def write_surface(session: Session, surface: Surface) -> Surface:
    """Inserts a surface (id 0) or updates one; returns it with its id. Raises VersionConflict."""
    take_numbers(session, "revision", 1)
    same_name = session.run("SELECT id FROM surfaces WHERE name = ?", (surface.name,))
    if same_name and same_name[0][0] != surface.id:
        raise VersionConflict(f"surface {surface.name!r} was created by another client: read it again")
    if not surface.id:
        saved = msgspec.structs.replace(surface, id=take_numbers(session, "surface", 1))
        values: Row = (saved.id, saved.name, saved.version, msgspec.json.encode(saved))
        session.run("INSERT INTO surfaces (id, name, version, body) VALUES (?, ?, ?, ?)", values)
        session.run("INSERT INTO logs VALUES (?, 0, 0, -1, 0, -1)", (saved.id,))
        return saved
    values = (surface.name, surface.version, msgspec.json.encode(surface), surface.id, surface.version - 1)
    sql = "UPDATE surfaces SET name = ?, version = ?, body = ? WHERE id = ? AND version = ? AND name IS NOT NULL"
    if not session.run(f"{sql} RETURNING id", values):
        raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
    return surface


def mark_surface(session: Session, surface: Surface) -> list[int]:
    """Makes a surface and its learners invisible; returns the ids of these. Raises VersionConflict."""
    take_numbers(session, "revision", 1)
    sql = "UPDATE surfaces SET name = NULL WHERE id = ? AND version = ? AND name IS NOT NULL RETURNING id"
    if not session.run(sql, (surface.id, surface.version)):
        raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
    for name in FACTS:
        key = f"{name} {surface.id}"
        session.run("DELETE FROM facts WHERE key = ? OR key LIKE ?", (key, f"{key} %"))
    return [learner.id for learner in read_learners(session, surface.id)]


# Learners


def read_learners(session: Session, surface_id: int | None = None) -> list[Learner]:
    """Returns the learners of a surface, or of all."""
    chosen, values = ("", ()) if surface_id is None else (" AND surface_id = ?", (surface_id,))
    rows = session.run(f"SELECT {_LEARNER} FROM learners WHERE NOT deleted{chosen} ORDER BY id", values)
    return list(map(_learner_of, rows))


def find_learner(session: Session, surface_id: int, segment: str, number: int) -> Learner | None:
    """Returns a learner by the name of its segment and the number of its arm."""
    sql = f"SELECT {_LEARNER} FROM learners WHERE surface_id = ? AND segment = ? AND number = ? AND NOT deleted"
    rows = session.run(sql, (surface_id, segment, number))
    return _learner_of(rows[0]) if rows else None


def _learner_of(row: Row) -> Learner:
    return Learner(**dict(zip(_LEARNER.split(", "), row, strict=True)))


def is_admitted(session: Session, surface_id: int, segment: str, limit: int) -> bool:
    """Returns whether a segment may have learners: it has one, is the default one, or the limit is not reached."""
    rows = session.run("SELECT DISTINCT segment FROM learners WHERE surface_id = ? AND NOT deleted", (surface_id,))
    segments = {name for (name,) in rows} | {""}
    return segment in segments or len(segments) < limit


def insert_learner(
    session: Session, surface_id: int, segment: str, number: int, limit: int, now: int
) -> Learner | None:
    """Creates a learner unless it exists, or its segment is not admitted, or its surface does not exist (None)."""
    take_numbers(session, "revision", 1)
    if found := find_learner(session, surface_id, segment, number):
        return found
    exists = session.run("SELECT 1 FROM surfaces WHERE id = ? AND name IS NOT NULL", (surface_id,))
    if not exists or not is_admitted(session, surface_id, segment, limit):
        return None
    id = take_numbers(session, "learner", 1)  # never used again, so that no token of another learner names it
    values = (id, surface_id, segment, number, now, 0, 0, False)
    session.run(f"INSERT INTO learners ({_LEARNER}, deleted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return Learner(id=id, surface_id=surface_id, segment=segment, number=number, used_at=now)


def reset_learners(session: Session, ids: Collection[int]) -> None:
    """Takes all events so far out of the states of learners, and deletes their snapshots."""
    take_numbers(session, "revision", 1)
    last = "(SELECT last_number FROM logs WHERE logs.surface_id = learners.surface_id)"
    session.many(f"UPDATE learners SET reset_number = {last} WHERE id = ?", [(id,) for id in sorted(ids)])
    session.many("DELETE FROM snapshots WHERE learner_id = ?", [(id,) for id in sorted(ids)])


# Deletion


def mark_learners(session: Session, ids: Collection[int], *, totals: bool) -> int:
    """Makes learners invisible; returns the number of their events.

    With ``totals``, the totals of segments that have no other learner are deleted as well.
    """
    take_numbers(session, "revision", 1)
    mark = "UPDATE learners SET deleted = TRUE WHERE id = ? AND NOT deleted RETURNING id, surface_id, segment"
    found = [row for id in sorted(ids) for row in session.run(mark, (id,))]
    counts = "SELECT count(*) FROM events WHERE learner_id IN ?"
    events = sum(count for (count,) in session.among(counts, [id for id, _, _ in found]))
    if totals:
        for surface_id, segment in sorted({(surface_id, segment) for _, surface_id, segment in found}):
            others = "SELECT 1 FROM learners WHERE surface_id = ? AND segment = ? AND NOT deleted"
            if not session.run(others, (surface_id, segment)):
                for table in ("minutes", "visitor_hours"):
                    session.run(f"DELETE FROM {table} WHERE surface_id = ? AND segment = ?", (surface_id, segment))
    return int(events)
