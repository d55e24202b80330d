"""Events in tables: each is stored once, settled once and counted once, whoever reports it and how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from ..ids import imported_id
from ..model import RESET, Event, Increments, Report, Status
from ..settlement import increments_of, reported, silent
from .additions import Additions, applied
from .database import Database, Session, add_history
from .rows import EVENT_COLUMNS, batches, event_of, row_of
from .sql_surfaces import add_counters

__all__ = ["EventTables"]

IMPORT_BATCH = 1000


class EventTables:
    """The part of a store that keeps events."""

    database: Database

    def remember(self, events: Sequence[Event]) -> list[Event]:
        """Insert what is absent. Not synced to disk: the token holds all that would be lost in a power cut."""
        if not events:
            return []
        told = _first_of_each(events)

        def work(session: Session) -> list[Event]:
            new = session.insert_events([row_of(told[id]) for id in sorted(told)])
            additions = Additions()
            for id in new:
                additions.arrived(told[id])
            add_history(session, additions)
            stored = told | _selected(session, sorted(told.keys() - new))
            return [stored[event.id] for event in events]

        return self.database.write(work, durable=False)

    def find(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        wanted = ids if len(ids) == 1 else sorted(set(ids))
        return {row[0]: event_of(row) for row in self.database.event_rows(wanted)} if ids else {}

    def report(self, reports: Sequence[Report], now: int) -> list[Status]:
        """Apply reports in one transaction; what the token tells is stored where the event is not known yet."""
        if not reports:
            return []
        ids = sorted({report.event.id for report in reports})

        def work(session: Session) -> list[Status]:
            surface_ids = {id for (id,) in session.run("SELECT id FROM surfaces")}
            told = [report.event for report in reports if report.event.surface_id in surface_ids]
            arrived = _insert_unknown(session, told, now) if self.database.shared else []
            stored = _selected(session, ids, lock=True)
            outcome = applied(stored, reports, surface_ids, _resets(session, stored), now)
            for event in arrived:
                outcome.additions.arrived(event)
            session.insert_events([row_of(event) for event in outcome.new])
            _write_changed(session, outcome.changed)
            add_counters(session, outcome.additions)
            return outcome.statuses

        return self.database.write(work)

    def settle_overdue(self, now: int, limit: int) -> int:
        def work(session: Session) -> int:
            overdue = session.run(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NULL AND expires_at < ?"
                f" ORDER BY expires_at LIMIT ?{self.database.skip_locked}",
                (now, limit),
            )
            return _settled(session, [(before, *silent(before, now)) for before in map(event_of, overdue)])

        # Most of the time nothing is overdue, and then the writer is not troubled.
        with self.database.reading() as session:
            due = session.run("SELECT 1 FROM events WHERE settled_at IS NULL AND expires_at < ? LIMIT 1", (now,))
        return self.database.write(work) if due else 0

    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int:
        """Settle open events of a segment as if no more clicks came."""

        def work(session: Session) -> int:
            rows = session.run(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NULL AND surface_id = ? AND segment = ?"
                f" AND created_at <= ? ORDER BY id LIMIT ?{self.database.skip_locked}",
                (surface_id, segment, now, limit),
            )
            return _settled(session, [(before, *_closed(before, now)) for before in map(event_of, rows)])

        return self.database.write(work)

    def import_events(self, events: Iterable[Event]) -> int:
        """Settled events of another log, in transactions of 1000: what is there already is not counted again."""
        return sum(self.database.write(partial(_imported, events=batch)) for batch in batches(events, IMPORT_BATCH))

    def settled(self, surface_id: int | None = None) -> Iterator[Event]:
        chosen = "" if surface_id is None else " AND surface_id = ?"
        values = () if surface_id is None else (surface_id,)
        with self.database.reading() as session:
            sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NOT NULL{chosen}"
            yield from map(event_of, session.stream(sql, values))

    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]:
        """Decided from ``since`` until before ``until``, in this order, open ones too."""
        with self.database.reading() as session:
            sql = (
                f"SELECT {EVENT_COLUMNS} FROM events"
                " WHERE surface_id = ? AND created_at >= ? AND created_at < ? ORDER BY created_at"
            )
            yield from map(event_of, session.stream(sql, (surface_id, since, until)))

    def open_events(self) -> int:
        with self.database.reading() as session:
            return int(session.run("SELECT count(*) FROM events WHERE settled_at IS NULL")[0][0])


def _closed(event: Event, now: int) -> tuple[Event, Increments | None]:
    """The event without more clicks: past its deadline by silence, before it as by final feedback."""
    if now > event.expires_at:
        return silent(event, now)
    after, increments, _ = reported(event, 0, True, now)
    return after, increments


def _settled(session: Session, changes: Sequence[tuple[Event, Event, Increments | None]]) -> int:
    """Write events, each before and after it settled, with what it adds; how many."""
    additions = Additions()
    for before, after, increments in changes:
        additions.turned(before, after)
        additions.add(increments)
    _write_changed(session, [after for _, after, _ in changes])
    add_counters(session, additions)
    return len(changes)


def _selected(session: Session, ids: Sequence[bytes], *, lock: bool = False) -> dict[bytes, Event]:
    return {row[0]: event_of(row) for row in session.select_events(ids, lock=lock)} if ids else {}


def _resets(session: Session, stored: Mapping[bytes, Event]) -> dict[tuple[int, str], int]:
    """When segments were last reset; needed for events that had settled before only."""
    needed = {(event.surface_id, event.segment) for event in stored.values() if event.settled_at is not None}
    # The reason is spelled out, so that the index of resets can be used: every segment ever deleted has a reset.
    sql = f"SELECT max(at) FROM adjustments WHERE reason = '{RESET}' AND surface_id = ? AND segment = ?"
    found = {where: session.run(sql, where)[0][0] for where in sorted(needed)}
    return {where: at for where, at in found.items() if at is not None}


def _first_of_each(events: Sequence[Event]) -> dict[bytes, Event]:
    return {event.id: event for event in reversed(events)}


def _insert_unknown(session: Session, told: Sequence[Event], now: int) -> list[Event]:
    """Where others write too, a row must be there before it can be locked; all insert in the same order."""
    known = {row[0] for row in session.select_events(sorted({event.id for event in told}))}
    unknown = {event.id: event for event in told if event.id not in known and now <= event.late_until}
    new = session.insert_events([row_of(unknown[id]) for id in sorted(unknown)])
    return [unknown[id] for id in new]


def _write_changed(session: Session, events: Sequence[Event]) -> None:
    rows = [(event.clicks, event.settled_at, event.settled_by, event.late, event.id) for event in events]
    session.update_events(rows)


def _imported(session: Session, events: Sequence[Event]) -> int:
    for event in events:
        if event.settled_at is None:
            raise ValueError(f"event {event.id.hex()} is not settled: only settled events can be imported")
    told = _first_of_each(events)
    taken = _inserted(session, told)
    # One log may teach several surfaces: what another one has is kept here under an id of its own.
    stored = _selected(session, sorted(told.keys() - {event.id for event in taken}))
    others = [told[id] for id, event in stored.items() if event.surface_id != told[id].surface_id]
    taken += _inserted(session, _first_of_each([_renamed(event) for event in others]))
    additions = Additions()
    for event in taken:
        additions.arrived(event)
        additions.turned(None, event)
        additions.add(increments_of(event))
    add_counters(session, additions)
    return len(taken)


def _inserted(session: Session, told: Mapping[bytes, Event]) -> list[Event]:
    """Insert in the order of ids, as everybody does; those that were not there."""
    return [told[id] for id in session.insert_events([row_of(told[id]) for id in sorted(told)])]


def _renamed(event: Event) -> Event:
    return msgspec.structs.replace(event, id=imported_id(event.surface_id, event.id.hex()))
