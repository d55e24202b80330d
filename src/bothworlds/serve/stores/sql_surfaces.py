"""SQL statements on surfaces, their segments and counters."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from ..checkpoints import removed_block
from ..model import RESET, Adjustment, Segment, Surface, split_counter_key
from .base import VersionConflict
from .batch_totals import BatchTotals
from .database import Session
from .rows import ADJUSTMENT_COLUMNS, Row, row_of_adjustment
from .sql_blocks import add_blocks, remove_blocks
from .sql_metadata import add_history, take_numbers
from .sql_predictions import add_settled, fill_predicted, read_settled
from .sql_visitors import add_visitor_sums

__all__ = [
    "add_adjustments",
    "add_counters",
    "delete_zero_rows",
    "insert_surface",
    "is_admitted",
    "lock_counters",
    "locked_learners",
    "locked_version",
    "missing_surfaces",
    "postdate_resets",
    "read_segment_names",
    "read_segments",
    "read_surfaces",
    "update_surface",
    "with_surface_id",
]

_surface = msgspec.json.Decoder(Surface).decode


def read_segment_names(session: Session, surface_id: int) -> set[str]:
    """Returns the keys of the stored counters of a surface."""
    return {name for (name,) in session.run("SELECT segment FROM segments WHERE surface_id = ?", (surface_id,))}


def is_admitted(names: Set[str], segment: str, limit: int) -> bool | None:
    """Returns whether a segment is admitted among these keys of counters; None if it is new and may be created.

    >>> is_admitted({"", "a"}, "a", 2), is_admitted({"", "a"}, "b", 2)
    (True, False)
    >>> is_admitted({"a"}, "b", 2), is_admitted({"a"}, "b", 3)
    (False, None)
    """
    if segment == "" or segment in names:
        return True
    segments = {split_counter_key(name)[0] for name in names}
    return None if len(segments | {""}) < limit else False


def lock_counters(session: Session, surface_id: int, segment: str | None = None) -> None:
    """Locks the counters of a surface, or of one segment, in the order in which all processes update them."""
    chosen, values = ("", (surface_id,)) if segment is None else (" AND segment = ?", (surface_id, segment))
    sql = f"SELECT 1 FROM counters WHERE surface_id = ?{chosen} ORDER BY segment, item, slot FOR UPDATE"
    session.run(sql, values)


def locked_version(session: Session, surface_id: int, lock: str) -> int | None:
    """Returns the version of a surface, None if it does not exist; ``lock`` is a clause that locks its row.

    FOR UPDATE waits for transactions that insert events of the surface, and later ones wait for it. FOR KEY SHARE keeps
    the surface from being deleted.
    """
    rows = session.run(f"SELECT version FROM surfaces WHERE id = ?{lock}", (surface_id,))
    return int(rows[0][0]) if rows else None


def locked_learners(session: Session, surface_id: int, lock: str) -> int:
    """Returns how many learners a surface has had, 0 if it does not exist; ``lock`` is as for ``locked_version``."""
    rows = session.run(f"SELECT body FROM surfaces WHERE id = ?{lock}", (surface_id,))
    return _surface(rows[0][0]).n_learners if rows else 0


def missing_surfaces(session: Session, surface_ids: Set[int]) -> set[int]:
    """Returns those of these surfaces that do not exist."""
    return {id for id in surface_ids if not session.run("SELECT 1 FROM surfaces WHERE id = ?", (id,))}


def delete_zero_rows(session: Session, surface_id: int, segment: str) -> None:
    """Deletes the policies and zero counters of a segment, and the segment itself unless it has counts again."""
    where = "WHERE surface_id = ? AND segment = ?"
    values = (surface_id, segment)
    session.run(f"DELETE FROM policies {where}", values)
    session.run(f"DELETE FROM counters {where} AND loss = 0 AND shown = 0 AND clicked = 0", values)
    session.run(f"DELETE FROM segment_numbers {where}", values)
    session.run(
        f"DELETE FROM segments {where} AND rounds = 0 AND NOT EXISTS (SELECT 1 FROM counters {where})", values * 2
    )


def read_surfaces(session: Session) -> list[Surface]:
    """Returns all surfaces in the order of their creation."""
    return [_surface(body) for (body,) in session.run("SELECT body FROM surfaces ORDER BY id")]


def read_segments(session: Session, surface_id: int, since: int = -1, only: str | None = None) -> list[Segment]:
    """Returns the segments of a surface with a revision greater than ``since``, or ``only`` one of them."""
    values: Row = (surface_id, since) if only is None else (surface_id, since, only)
    chosen = "" if only is None else " AND s.segment = ?"
    found = session.run(
        "SELECT s.segment, s.rounds, s.revision FROM segments s"
        f" WHERE s.surface_id = ? AND s.revision > ?{chosen} ORDER BY s.segment",
        values,
    )
    segments = {
        name: Segment(surface_id=surface_id, name=name, rounds=rounds, revision=revision, loss={}, shown={}, clicked={})
        for name, rounds, revision in found
    }
    cells = session.run(
        "SELECT c.segment, c.item, c.slot, c.loss, c.shown, c.clicked FROM counters c JOIN segments s"
        " ON s.surface_id = c.surface_id AND s.segment = c.segment WHERE s.surface_id = ? AND s.revision > ?"
        f"{chosen}",
        values,
    )
    for name, item, slot, loss, shown, clicked in cells:
        if segment := segments.get(name):  # it may have been created between the two statements
            segment.loss[item, slot], segment.shown[item, slot], segment.clicked[item, slot] = loss, shown, clicked
    fill_predicted(session, segments, surface_id, since)
    return list(segments.values())


def add_counters(session: Session, totals: BatchTotals) -> None:
    """Adds the totals of a batch to counters, segments, blocks and history, each in sorted order to avoid deadlocks.

    The revision is taken late, because all processes wait for its row. The history is last: decisions of other
    processes, for which requests wait, are counted in the same rows.
    """
    cells = sorted(totals.cells().items())
    session.many(
        "INSERT INTO counters (surface_id, segment, item, slot, loss, shown, clicked) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (surface_id, segment, item, slot) DO UPDATE SET loss = counters.loss + excluded.loss,"
        " shown = counters.shown + excluded.shown, clicked = counters.clicked + excluded.clicked",
        [(*cell, *sums) for cell, sums in cells],
    )
    if totals.rounds or totals.versions:
        revision = take_numbers(session, "revision", 1)
        session.many(
            "INSERT INTO segments (surface_id, segment, rounds, revision) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (surface_id, segment) DO UPDATE"
            " SET rounds = segments.rounds + excluded.rounds, revision = excluded.revision",
            [(*segment, rounds, revision) for segment, rounds in sorted(totals.rounds.items())],
        )
        add_blocks(session, totals, revision)
        add_settled(session, totals)
    add_history(session, totals)
    add_visitor_sums(session, totals)


def insert_surface(session: Session, surface: Surface) -> Surface:
    """Inserts a surface and returns it with its id; raises VersionConflict if the name exists."""
    number = take_numbers(session, "surface", 1)
    if session.run("SELECT 1 FROM surfaces WHERE name = ?", (surface.name,)):
        raise VersionConflict(f"surface {surface.name!r} was created by another client: read it again")
    saved = msgspec.structs.replace(surface, id=number)
    values = (saved.id, saved.name, saved.version, msgspec.json.encode(saved))
    session.many("INSERT INTO surfaces (id, name, version, body) VALUES (?, ?, ?, ?)", [values])
    return saved


def update_surface(session: Session, surface: Surface) -> Surface:
    """Updates a surface; raises VersionConflict unless the stored version is one less than the new one."""
    body = msgspec.json.encode(surface)
    updated = session.run(
        "UPDATE surfaces SET name = ?, version = ?, body = ? WHERE id = ? AND version = ? RETURNING id",
        (surface.name, surface.version, body, surface.id, surface.version - 1),
    )
    if not updated:
        raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
    return surface


def add_adjustments(session: Session, adjustments: Sequence[Adjustment]) -> bool:
    """Applies and logs adjustments; returns whether this changed the revision."""
    totals = BatchTotals()
    if any(one.reason == RESET for one in adjustments):
        take_numbers(session, "revision", 1)
    applied = [_reset_blocks(session, one, totals) if one.reason == RESET else one for one in adjustments]
    for adjustment in applied:
        totals.add(msgspec.structs.replace(adjustment.increments, at=adjustment.at))
        totals.add_settled(adjustment.increments.surface_id, adjustment.increments.segment, adjustment.settled)
    add_counters(session, totals)
    if applied:
        last = take_numbers(session, "adjustment", len(applied))
        rows = [(last - k, *row_of_adjustment(a)) for k, a in enumerate(reversed(applied))]
        session.many(f"INSERT INTO adjustments (id, {ADJUSTMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return bool(totals.rounds)


def _reset_blocks(session: Session, reset: Adjustment, totals: BatchTotals) -> Adjustment:
    """Deletes the blocks and numbers of a segment; returns the reset with all that it has removed.

    The reset itself is counted as an increment at its own time. There, ``totals`` gives back what the blocks had, so
    that the sum of all blocks equals the counters even if the two do not agree.
    """
    segment = (reset.increments.surface_id, reset.increments.segment)
    removed = remove_blocks(session, *segment)
    session.run("DELETE FROM segment_numbers WHERE surface_id = ? AND segment = ?", segment)
    totals.give_back(*segment, reset.at, [one._replace(mixture=(0, 0, 0)) for one in removed])
    removal = tuple(map(removed_block, removed))
    return msgspec.structs.replace(reset, removed=removal, settled=read_settled(session, *segment, sign=-1))


def postdate_resets(session: Session, surface_id: int, adjustments: Sequence[Adjustment]) -> list[Adjustment]:
    """Moves resets forward to the last settled event that they remove: clocks differ, and may be set back."""
    resets = [one for one in adjustments if one.reason == RESET]
    if not resets:
        return list(adjustments)
    settled = session.run(
        "SELECT segment, max(settled_at) FROM events"
        " WHERE surface_id = ? AND settled_at > ? AND settled_by <> 'import' GROUP BY segment",
        (surface_id, min(one.at for one in resets)),
    )
    latest: dict[str, int] = {row[0]: row[1] for row in settled}

    def dated(reset: Adjustment) -> Adjustment:
        segment, _ = split_counter_key(reset.increments.segment)
        return msgspec.structs.replace(reset, at=max(reset.at, latest.get(segment, reset.at)))

    return [dated(one) if one.reason == RESET else one for one in adjustments]


def with_surface_id(adjustment: Adjustment, surface_id: int) -> Adjustment:
    """Returns the adjustment for another surface id."""
    increments = msgspec.structs.replace(adjustment.increments, surface_id=surface_id)
    return msgspec.structs.replace(adjustment, increments=increments)
