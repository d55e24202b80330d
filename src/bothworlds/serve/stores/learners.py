"""SQL on surfaces, their learners, and the snapshots of these.

Every transaction that changes surfaces or learners takes the revision first, so that these follow one another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from ..events import Learner
from ..model import Conflict, Surface
from .database import Row, Session
from .records import Entries, take_numbers, write_entries

FACTS = ("guard", "sample ratio")  # facts on a surface: one of these, and its number

_surface = msgspec.json.Decoder(Surface).decode
_LEARNER = "id, surface_id, number, reset_number, erased_number"


class VersionConflict(Conflict):
    """The surface was changed since it was read."""


# Surfaces


def read_surfaces(session: Session) -> list[Surface]:
    """Returns all surfaces in the order of their creation."""
    return [_surface(body) for (body,) in session.run("SELECT body FROM surfaces WHERE name IS NOT NULL ORDER BY id")]


def read_revision(session: Session) -> int:
    """Returns a number that grows with every change of a surface or its learners by any process; cheap."""
    return int(session.run("SELECT value FROM numbers WHERE name = 'revision'")[0][0])


def write_surface(session: Session, surface: Surface, audit: Entries) -> Surface:
    """Inserts a surface (id 0) or updates one, with learners for its policies and audit entries; returns it.

    The new id is also written into the audit entries. The caller assigns item indices. Raises VersionConflict
    unless ``surface.version`` is one more than the stored version, or if the name exists.
    """
    take_numbers(session, "revision", 1)
    same_name = session.run("SELECT id FROM surfaces WHERE name = ?", (surface.name,))
    if same_name and same_name[0][0] != surface.id:
        raise VersionConflict(f"surface {surface.name!r} was created by another client: read it again")
    saved = surface if surface.id else msgspec.structs.replace(surface, id=take_numbers(session, "surface", 1))
    values: Row = (saved.name, saved.version, msgspec.json.encode(saved), saved.id)
    if not surface.id:
        session.run("INSERT INTO surfaces (name, version, body, id) VALUES (?, ?, ?, ?)", values)
        session.run("INSERT INTO logs VALUES (?, 0, 0, -1, 0, -1)", (saved.id,))
    else:
        sql = "UPDATE surfaces SET name = ?, version = ?, body = ? WHERE id = ? AND version = ? AND name IS NOT NULL"
        if not session.run(f"{sql} RETURNING id", (*values, surface.version - 1)):
            raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
    known = {learner.number for learner in read_learners(session, saved.id)}
    for number in sorted(saved.policies.keys() - known):
        id = take_numbers(session, "learner", 1)  # never used again, so that no token of another learner names it
        session.run(f"INSERT INTO learners ({_LEARNER}, deleted) VALUES (?, ?, ?, 0, 0, FALSE)", (id, saved.id, number))
    write_entries(session, [{**entry, "surface_id": entry.get("surface_id") or saved.id} for entry in audit])
    return saved


def mark_surface(session: Session, surface: Surface, audit: Entries) -> None:
    """Makes a surface and its learners invisible; see ``Store.delete_surface``. Raises VersionConflict."""
    take_numbers(session, "revision", 1)
    sql = "UPDATE surfaces SET name = NULL WHERE id = ? AND version = ? AND name IS NOT NULL RETURNING id"
    if not session.run(sql, (surface.id, surface.version)):
        raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
    for name in FACTS:
        key = f"{name} {surface.id}"
        session.run("DELETE FROM facts WHERE key = ? OR key LIKE ?", (key, f"{key} %"))
    session.run("UPDATE learners SET deleted = TRUE WHERE surface_id = ?", (surface.id,))
    write_entries(session, audit)


# Learners


def read_learners(session: Session, surface_id: int | None = None) -> list[Learner]:
    """Returns the learners of a surface, or of all, in the order of their creation."""
    chosen, values = ("", ()) if surface_id is None else (" AND surface_id = ?", (surface_id,))
    rows = session.run(f"SELECT {_LEARNER} FROM learners WHERE NOT deleted{chosen} ORDER BY id", values)
    return [Learner(**dict(zip(_LEARNER.split(", "), row, strict=True))) for row in rows]


def reset_learners(session: Session, ids: Collection[int], audit: Entries) -> None:
    """Takes all events that are settled so far out of the states of learners, and deletes their snapshots."""
    take_numbers(session, "revision", 1)
    last = "(SELECT last_number FROM logs WHERE logs.surface_id = learners.surface_id)"
    session.many(f"UPDATE learners SET reset_number = {last} WHERE id = ?", [(id,) for id in sorted(ids)])
    session.many("DELETE FROM snapshots WHERE learner_id = ?", [(id,) for id in sorted(ids)])
    write_entries(session, audit)


# Snapshots


class Snapshot(NamedTuple):
    """The state of a learner after its events up to a number, encoded; ``format`` says how."""

    learner_id: int
    number: int
    format: str
    state: bytes


def write_snapshot(session: Session, learner_id: int, number: int, format: str, state: bytes) -> None:
    """Writes the state of a learner after the event of this number, or replaces it.

    Does nothing if the learner was deleted, or was reset at this number or later.
    """
    session.run(
        "INSERT INTO snapshots (learner_id, number, format, state)"
        " SELECT id, ?, ?, ? FROM learners WHERE id = ? AND NOT deleted AND reset_number < ?"
        " ON CONFLICT (learner_id, number) DO UPDATE SET format = excluded.format, state = excluded.state",
        (number, format, state, learner_id, number),
    )


def read_snapshot(session: Session, learner_id: int, *, oldest: bool = False) -> Snapshot | None:
    """Returns the newest snapshot of a learner, or the oldest one; none from before its last reset."""
    rows = session.run(
        "SELECT s.learner_id, s.number, s.format, s.state FROM snapshots s JOIN learners l ON l.id = s.learner_id"
        " WHERE s.learner_id = ? AND NOT l.deleted AND s.number > l.reset_number"
        f" ORDER BY s.number {'ASC' if oldest else 'DESC'} LIMIT 1",
        (learner_id,),
    )
    return Snapshot(*rows[0]) if rows else None


def drop_snapshots(session: Session, learner_id: int, keep: int = 2) -> None:
    """Deletes all snapshots of a learner but the newest ones."""
    newest = "SELECT number FROM snapshots WHERE learner_id = ? ORDER BY number DESC LIMIT ?"
    sql = f"DELETE FROM snapshots WHERE learner_id = ? AND number NOT IN ({newest})"
    session.run(sql, (learner_id, learner_id, keep))
