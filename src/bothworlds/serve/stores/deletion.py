"""SQL that deletes events for good, without changing a state that was learned from them.

A settled event is marked, and loses its visitor at once. Its content stays until the oldest snapshot of its learner
covers its number, so that a replay from any snapshot gives the state that was served. The id stays as a tombstone until
its token has expired, so that neither a repeated request nor feedback brings the event back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..events import Event
from .database import Row, Session
from .events import EVENTS, select_events
from .records import Entries, write_entries

# An event that no replay needs: the state of its learner does not contain it, or the oldest snapshot does.
COVERED = (
    "(e.number <= l.reset_number OR e.number <="
    " coalesce((SELECT min(s.number) FROM snapshots s WHERE s.learner_id = e.learner_id), 0))"
)
SKIP = "UPDATE OF e SKIP LOCKED"
ERASABLE = "e.deleted AND e.listed IS NOT NULL"
OLD = "e.surface_id = ? AND e.created_at < ? AND e.late_until < ? AND e.number IS NOT NULL"


class DeletedEvents(msgspec.Struct, frozen=True):
    """How many events of a surface were deleted; of those that were too old, the latest creation time and number.

    Without such events, ``until`` is -1 and ``number`` 0.
    """

    events: int = 0
    until: int = -1
    number: int = 0


def read_deleted(session: Session, surface_id: int) -> DeletedEvents:
    """Returns how many events of a surface were deleted, and up to when and to which number all old ones."""
    rows = session.run("SELECT deleted, deleted_until, deleted_number FROM logs WHERE surface_id = ?", (surface_id,))
    return DeletedEvents(*rows[0]) if rows else DeletedEvents()


def delete_events(session: Session, ids: Iterable[bytes], audit: Callable[[Sequence[Event]], Entries]) -> int:
    """Deletes the stored events among these ids; returns how many. None of them is ever stored again.

    They are not in exports, lookups and lists any more, and have no visitor. An open event is gone at once, and is
    never learned from; the content of a settled one is erased by ``erase_events``. Totals and states stay as they are.
    ``audit`` returns the audit entries for the deleted events, if there are any.
    """
    found = [event for event in select_events(session, set(ids), locked=True).values() if not event.deleted]
    emptied = [(None, None, None, None, True, event.id) for event in found if event.number is None]
    session.update("events", ("listed", "rewards", "visitor", "due_at", "deleted", "id"), emptied)
    marked = [(None, True, event.id) for event in found if event.number is not None]
    session.update("events", ("visitor", "deleted", "id"), marked)
    counts = Counter(event.surface_id for event in found)
    sql = "UPDATE logs SET deleted = deleted + ? WHERE surface_id = ?"
    session.many(sql, [(count, surface_id) for surface_id, count in sorted(counts.items())])
    write_entries(session, audit(found) if found else ())
    return len(found)


def erase_events(session: Session, now: int, limit: int) -> int:
    """Erases covered content of deleted events, and tombstones whose token has expired; returns how many."""
    lock = session.lock(SKIP)
    sql = f"SELECT e.id, e.learner_id, e.number FROM {EVENTS} WHERE {ERASABLE} AND {COVERED} LIMIT ?{lock}"
    erased = session.run(sql, (limit,))
    session.update("events", ("listed", "rewards", "id"), [(None, None, id) for id, _, _ in erased])
    _note_erased(session, [row[1:] for row in erased])
    sql = f"SELECT e.id, e.surface_id, e.created_at FROM {EVENTS} WHERE e.deleted AND e.listed IS NULL"
    expired = session.run(f"{sql} AND e.late_until < ? LIMIT ?{lock}", (now, limit))
    _drop(session, expired)
    return len(erased) + len(expired)


def delete_old_events(
    session: Session, surface_id: int, before: int, late_before: int, limit: int, audit: Entries
) -> int:
    """Deletes settled events created before ``before`` whose late window ended before ``late_before``.

    Deletes up to ``limit`` of them, the oldest first, and returns how many; only those that the oldest snapshot of
    their learner covers, or a reset: see ``read_uncovered``. Audit entries are written if it deletes any.
    """
    sql = f"SELECT e.id, e.surface_id, e.created_at, e.learner_id, e.number, e.deleted FROM {EVENTS} WHERE {OLD}"
    end = f"ORDER BY e.created_at LIMIT ?{session.lock(SKIP)}"
    rows = session.run(f"{sql} AND {COVERED} {end}", (surface_id, before, late_before, limit))
    if not rows:
        return 0
    _drop(session, [row[:3] for row in rows])
    _note_erased(session, [row[3:5] for row in rows])
    until, number = max(row[2] for row in rows), max(row[4] for row in rows)
    session.run(
        "UPDATE logs SET deleted = deleted + ?,"
        " deleted_until = CASE WHEN deleted_until < ? THEN ? ELSE deleted_until END,"
        " deleted_number = CASE WHEN deleted_number < ? THEN ? ELSE deleted_number END WHERE surface_id = ?",
        (sum(not row[5] for row in rows), until, until, number, number, surface_id),
    )
    write_entries(session, audit)
    return len(rows)


def read_uncovered(
    session: Session, surface_id: int | None = None, before: int = 0, late_before: int = 0
) -> dict[int, int]:
    """Returns the learners whose oldest snapshot must cover more before events can be deleted, and which number.

    Without a surface, for ``erase_events``; with one, for ``delete_old_events`` with the same arguments.
    """
    which, values = (ERASABLE, ()) if surface_id is None else (OLD, (surface_id, before, late_before))
    sql = f"SELECT e.learner_id, max(e.number) FROM {EVENTS} WHERE {which} AND NOT {COVERED} GROUP BY e.learner_id"
    return dict(session.run(sql, values))


def _drop(session: Session, rows: Sequence[Row]) -> None:
    """Deletes the rows of events, each given by its id, surface and creation time.

    From now on, feedback on an event of that time that is not stored is refused, whatever the clock says.
    """
    session.many("DELETE FROM events WHERE id = ?", [(id,) for id, _, _ in rows])
    latest: dict[int, int] = {}
    for _, surface_id, created_at in rows:
        latest[surface_id] = max(created_at, latest.get(surface_id, -1))
    sql = "UPDATE logs SET closed_until = ? WHERE surface_id = ? AND closed_until < ?"
    session.many(sql, [(at, surface_id, at) for surface_id, at in sorted(latest.items())])


def _note_erased(session: Session, rows: Sequence[Row]) -> None:
    """Remembers the largest number of erased events, each given by its learner and number."""
    largest: dict[int, int] = {}
    for learner_id, number in rows:
        largest[learner_id] = max(number, largest.get(learner_id, 0))
    sql = "UPDATE learners SET erased_number = ? WHERE id = ? AND erased_number < ?"
    session.many(sql, [(number, learner_id, number) for learner_id, number in sorted(largest.items())])


# Learners and surfaces that are marked as deleted


def has_marked(session: Session) -> bool:
    """Returns whether a deletion of learners or surfaces was interrupted."""
    marked = "SELECT 1 FROM learners WHERE deleted UNION ALL SELECT 1 FROM surfaces WHERE name IS NULL LIMIT 1"
    return bool(session.run(marked))


def drop_marked(session: Session, limit: int) -> bool:
    """Deletes up to ``limit`` events of learners that are marked, then these, then surfaces that are marked.

    Returns whether there may be more to do.
    """
    found = session.run("SELECT id FROM learners WHERE deleted ORDER BY id LIMIT 1")
    if found:
        chosen = "SELECT id FROM events WHERE learner_id = ? LIMIT ?"
        if not session.run(f"DELETE FROM events WHERE id IN ({chosen}) RETURNING surface_id", (found[0][0], limit)):
            session.run("DELETE FROM learners WHERE id = ?", found[0])
        return True
    session.run("DELETE FROM surfaces WHERE name IS NULL")
    return False
