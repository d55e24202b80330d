"""SQL statements that delete events, segments and surfaces, and those on checkpoints, which stand in for events.

An event is deleted in the same transaction in which its sums are added to a checkpoint. Its id is remembered
(``deleted_events``), so that its token cannot store and count it again. A deleted segment is remembered by the time of
its deletion, for the same reason; a deleted surface need not be, because its number is not used again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...policies.parts.time_ranges import enclosing_range, grouped
from ..checkpoints import Checkpoint, SignedCheckpoint, is_genuine, merged_checkpoints, opened, page_of, signed
from ..model import Event, Status
from ..settlement import increments_of
from ..time_blocks import NO_CELLS, TimeBlock, second_of
from .base import DeletedEvents, StoreError
from .batch_totals import BatchTotals
from .database import Session
from .sql_blocks import read_boundaries
from .sql_metadata import add_history, read_fact, take_numbers, write_fact

__all__ = [
    "delete_events",
    "delete_facts",
    "delete_rows",
    "forget_deleted",
    "forget_segments",
    "read_checkpoints",
    "read_deleted",
    "statuses_of_deleted",
]

COLUMNS = "surface_id, segment, start, until, body, signature"
_SEGMENT = "WHERE surface_id = ? AND segment = ?"
_INSIDE = f"{_SEGMENT} AND start >= ? AND until <= ?"
DELETED_FACT = "deleted events"
FACTS = (DELETED_FACT, "guard", "sample ratio", "segment uses")  # each followed by the number of a surface

_deleted = msgspec.msgpack.Decoder(DeletedEvents).decode


def delete_events(session: Session, events: Sequence[Event], now: int, key: bytes, *, remember: bool) -> None:
    """Deletes events whose rows are locked; those that are settled stay in checkpoints, which ``key`` signs.

    An open event is deleted without being learned from. ``remember`` keeps the ids; without it, all events must be past
    their late windows. Raises StoreError if a checkpoint that must be changed is not as it was signed.
    """
    undecided = BatchTotals(now)
    for event in events:
        if event.settled_at is None:
            undecided.uncount_decision(event)
    add_history(session, undecided)
    take_numbers(session, "checkpoint", 1)  # from here on, no other process changes checkpoints
    session.many("DELETE FROM events WHERE id = ?", [(event.id,) for event in events])
    if remember:
        session.many(
            "INSERT INTO deleted_events (id, surface_id, segment, created_at, late_until) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO NOTHING",
            [(one.id, one.surface_id, one.segment, one.created_at, one.late_until) for one in events],
        )
    _add_to_checkpoints(session, [event for event in events if event.settled_at is not None], now, key)
    for surface_id, count in sorted(Counter(event.surface_id for event in events).items()):
        before = read_deleted(session, surface_id)
        until = before.until if remember else max(before.until, *(event.created_at for event in events))
        after = msgspec.msgpack.encode(DeletedEvents(before.events + count, until))
        write_fact(session, f"{DELETED_FACT} {surface_id}", after, only_if_absent=False, expected=None)


def read_deleted(session: Session, surface_id: int) -> DeletedEvents:
    """Returns how many events of a surface were deleted, and until when all of them."""
    fact = read_fact(session, f"{DELETED_FACT} {surface_id}")
    return DeletedEvents() if fact is None else _deleted(fact)


def _add_to_checkpoints(session: Session, events: Sequence[Event], now: int, key: bytes) -> None:
    """Adds events to the checkpoints of their segments; ranges become longer with their age, as those of blocks do."""
    for segment, parts in sorted(_checkpoints_of(session, events, second_of(now)).items()):
        boundaries = read_boundaries(session, *segment)
        stored = [_Stored(*row) for row in session.run(f"SELECT start, until FROM checkpoints {_SEGMENT}", segment)]
        given: list[_Stored | Checkpoint] = [*stored, *parts]
        for (start, until), group in grouped(given, second_of(now), boundaries):
            kept = [one for one in group if isinstance(one, _Stored)]
            new = [one for one in group if isinstance(one, Checkpoint)]
            if kept == [(start, until)] and not new:
                continue
            inside = (*segment, start, until)
            rows = session.run(f"SELECT {COLUMNS} FROM checkpoints {_INSIDE}", inside)
            known = [_genuine(SignedCheckpoint(*row), key) for row in rows]
            session.run(f"DELETE FROM checkpoints {_INSIDE}", inside)
            row = signed(merged_checkpoints(start, until, [*known, *new]), key)
            session.many(f"INSERT INTO checkpoints ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", [row])


class _Stored(NamedTuple):
    """The range of a stored checkpoint."""

    start: int
    until: int


def _checkpoints_of(session: Session, events: Sequence[Event], now: int) -> dict[tuple[int, str], list[Checkpoint]]:
    """Returns checkpoints of settled events by segment, with ranges as long as their age allows at the second ``now``.

    Events are summed by range, not by second: there are few ranges, and many seconds.
    """
    totals = BatchTotals()
    boundaries: dict[tuple[int, str], tuple[int, ...]] = {}
    last: dict[tuple[int, str], tuple[int, int]] = {}  # the range of the last event: the next one is often in it
    pages: dict[tuple[int, str, int, int], Counter[tuple[str, str]]] = defaultdict(Counter)
    settled: dict[tuple[int, str, int, int], Counter[int]] = defaultdict(Counter)
    for event in events:
        increments, second = increments_of(event), second_of(event.created_at)
        segment = (increments.surface_id, increments.segment)
        if segment not in boundaries:
            boundaries[segment] = read_boundaries(session, *segment)
        start, until = last.get(segment, (0, 0))
        if not start <= second < until:
            start, until = last[segment] = enclosing_range(second, second + 1, now, boundaries[segment])
        totals.add(msgspec.structs.replace(increments, at=1000 * start))
        pages[*segment, start, until][page_of(event)] += 1
        if increments.version:
            settled[*segment, start, until][increments.version] += increments.rounds
    learned = {(*segment, block.start): block for segment, blocks in totals.blocks().items() for block in blocks}
    made: dict[tuple[int, str], list[Checkpoint]] = defaultdict(list)
    for (surface_id, segment_name, start, until), counts in sorted(pages.items()):
        sums = learned.get((surface_id, segment_name, start)) or TimeBlock(start, until, 0, NO_CELLS)
        versions = tuple(sorted(settled[surface_id, segment_name, start, until].items()))
        checkpoint = Checkpoint(surface_id, segment_name, sums._replace(until=until), dict(counts), versions)
        made[surface_id, segment_name].append(checkpoint)
    return made


def _genuine(stored: SignedCheckpoint, key: bytes) -> Checkpoint:
    if not is_genuine(stored, key):
        raise StoreError(
            f"a checkpoint of surface number {stored.surface_id}, segment {stored.segment!r}, is not as it was signed:"
            " nothing was deleted; run bothworlds verify, and restore a backup"
        )
    return opened(stored)


def read_checkpoints(session: Session, surface_id: int | None = None) -> Iterator[SignedCheckpoint]:
    """Yields the checkpoints of a surface, or of all."""
    where, values = ("", ()) if surface_id is None else (" WHERE surface_id = ?", (surface_id,))
    for row in session.stream(f"SELECT {COLUMNS} FROM checkpoints{where} ORDER BY surface_id, segment, start", values):
        yield SignedCheckpoint(*row)


def statuses_of_deleted(session: Session, events: Sequence[Event]) -> dict[bytes, Status]:
    """Returns the status of feedback on those of these events, none of which is stored, that were deleted."""
    statuses: dict[bytes, Status] = {}
    if not events:
        return statuses
    segments = read_deleted_segments(session)
    for event in events:
        if segments.get((event.surface_id, event.segment), -1) >= event.created_at:
            statuses[event.id] = "expired"
        if session.run("SELECT 1 FROM deleted_events WHERE id = ?", (event.id,)):
            statuses[event.id] = "rejected"
    return statuses


def read_deleted_segments(session: Session) -> dict[tuple[int, str], int]:
    """Returns when segments were deleted; those that are remembered."""
    rows = session.run("SELECT surface_id, segment, deleted_at FROM deleted_segments")
    return {(surface_id, segment): deleted_at for surface_id, segment, deleted_at in rows}


def delete_rows(
    session: Session, tables: Sequence[str], surface_id: int, segments: Collection[str] | None = None
) -> int:
    """Deletes the rows of a surface, or of some segments, from all tables but those of surfaces and of the audit log.

    ``segments`` are names of segments and keys of counters. Returns the number of events. The surface must be locked.
    """
    where, values = "WHERE surface_id = ?", (surface_id, *sorted(segments or ()))
    if segments is not None:
        where += f" AND segment IN ({', '.join('?' * len(segments))})"
    events = int(session.run(f"SELECT count(*) FROM events {where}", values)[0][0])
    session.run(f"DELETE FROM events {where}", values)
    # From here on, no other process changes segments or blocks; later than the events, since all processes wait for it.
    take_numbers(session, "revision", 1)
    for table in tables:
        if table != "audit" and "surface_id" in session.columns(table):
            session.run(f"DELETE FROM {table} {where}", values)
    return events


def forget_segments(session: Session, before: int) -> None:
    """Forgets deleted segments whose tokens have expired."""
    session.run("DELETE FROM deleted_segments WHERE deleted_at < ?", (before,))


def delete_facts(session: Session, surface_id: int) -> None:
    """Deletes the facts about a surface."""
    for name in FACTS:
        session.run("DELETE FROM facts WHERE key = ? OR key LIKE ?", (f"{name} {surface_id}", f"{name} {surface_id} %"))


def forget_deleted(session: Session, surface_id: int, created_before: int, late_before: int) -> None:
    """Forgets the ids of deleted events whose tokens have expired and that cannot be imported again."""
    session.run(
        "DELETE FROM deleted_events WHERE surface_id = ? AND created_at < ? AND late_until < ?",
        (surface_id, created_before, late_before),
    )
