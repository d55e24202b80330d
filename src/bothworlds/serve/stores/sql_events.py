"""SQL statements on events: each event is stored once, settled once and counted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..model import RESET, Event, Increments, imported_id
from ..rewards import redrawn
from ..settlement import apply_clicks, increments_of, settle_at_deadline
from .batch_totals import BatchTotals
from .database import Session
from .rows import encoded_rewards, event_of, row_of
from .sql_surfaces import add_counters

__all__ = [
    "first_by_id",
    "import_batch",
    "insert_unknown",
    "last_resets",
    "select_events",
    "settle_now",
    "update_events",
    "write_settled",
]


def first_by_id(events: Sequence[Event]) -> dict[bytes, Event]:
    """Maps each id to the first event that has it."""
    return {event.id: event for event in reversed(events)}


def select_events(session: Session, ids: Sequence[bytes], *, lock: bool = False) -> dict[bytes, Event]:
    """Returns the stored events among these ids; ``lock`` holds their rows until the transaction ends."""
    return {row[0]: event_of(row) for row in session.select_events(ids, lock=lock)} if ids else {}


def insert_unknown(session: Session, events: Sequence[Event], now: int) -> list[Event]:
    """Inserts the events that are not stored and not past their late window; returns them.

    In a shared database a row must exist before it can be locked. All processes insert in the order of ids.
    """
    known = {row[0] for row in session.select_events(sorted({event.id for event in events}))}
    unknown = {event.id: event for event in events if event.id not in known and now <= event.late_until}
    new = session.insert_events([row_of(unknown[id]) for id in sorted(unknown)])
    return [unknown[id] for id in new]


def update_events(session: Session, events: Sequence[Event]) -> None:
    """Writes the clicks, the rewards and the settlement of stored events."""
    session.update_events(
        [
            (event.clicks, event.settled_at, event.settled_by, event.late, encoded_rewards(event), event.id)
            for event in events
        ]
    )


def settle_now(event: Event, now: int) -> tuple[Event, Increments | None]:
    """Settles an open event without further clicks, even before its deadline."""
    if now > event.expires_at:
        return settle_at_deadline(event, now)
    after, increments, _ = apply_clicks(event, 0, True, now)
    return after, increments


def write_settled(session: Session, changes: Sequence[tuple[Event, Event, Increments | None]], now: int) -> int:
    """Writes events, each given before and after it settled, and adds their increments; returns how many."""
    totals = BatchTotals(now)
    for before, after, increments in changes:
        totals.count_outcome(before, after)
        totals.add(increments)
    update_events(session, [after for _, after, _ in changes])
    add_counters(session, totals)
    return len(changes)


def last_resets(session: Session, events: Iterable[Event]) -> dict[tuple[int, str], int]:
    """Returns the time of the last reset of the counters of each settled event among these."""
    needed = {(event.surface_id, event.counter_key) for event in events if event.settled_at is not None}
    # The reason is a literal, so that the partial index on resets is used: every deleted segment leaves a reset.
    sql = f"SELECT max(at) FROM adjustments WHERE reason = '{RESET}' AND surface_id = ? AND segment = ?"
    found = {segment: session.run(sql, segment)[0][0] for segment in sorted(needed)}
    return {segment: at for segment, at in found.items() if at is not None}


def import_batch(session: Session, events: Sequence[Event]) -> int:
    """Inserts settled events and counts those that were not stored; returns how many. Raises ValueError if one is open.

    They are learned from, but are not in the history: no arm of this surface was drawn for them, so that its arms could
    not be compared any more.

    One log may be imported into several surfaces: an event id that belongs to another surface is replaced by one that
    is derived from it.
    """
    for event in events:
        if event.settled_at is None:
            raise ValueError(f"event {event.id.hex()} is not settled: only settled events can be imported")
    by_id = first_by_id(events)
    taken = _insert(session, by_id)
    stored = select_events(session, sorted(by_id.keys() - {event.id for event in taken}))
    others = [by_id[id] for id, event in stored.items() if event.surface_id != by_id[id].surface_id]
    taken += _insert(session, first_by_id([_with_imported_id(event) for event in others]))
    totals = BatchTotals()
    for event in taken:
        totals.add(increments_of(event))
    add_counters(session, totals)
    return len(taken)


def _insert(session: Session, by_id: Mapping[bytes, Event]) -> list[Event]:
    """Inserts in the order of ids, like every other writer; returns the events that were not stored."""
    return [by_id[id] for id in session.insert_events([row_of(by_id[id]) for id in sorted(by_id)])]


def _with_imported_id(event: Event) -> Event:
    return redrawn(msgspec.structs.replace(event, id=imported_id(event.surface_id, event.id.hex())))
