"""The store in SQL tables: the same statements for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ..checkpoints import SignedCheckpoint
from ..model import Adjustment, Event, Segment, Status, Surface, VerifiedFeedback, counter_key
from ..prediction_versions import PredictionVersion
from ..settlement import settle_at_deadline
from ..time_blocks import TimeBlock, second_of
from . import sql_blocks, sql_deletion, sql_events, sql_metadata, sql_predictions, sql_surfaces, sql_visitors
from .base import BlockKey, DeletedEvents, Store, VersionConflict, VisitorSums
from .batch_totals import HOUR, BatchTotals, apply_batch
from .database import Database, Session
from .rows import ADJUSTMENT_COLUMNS, EVENT_COLUMNS, Row, adjustment_of, batches, event_of, row_of

__all__ = ["TABLES", "SqlStore"]

IMPORT_BATCH = 1000  # events in one transaction

# In the order in which they can be filled: referenced tables first; facts last, because they mark a complete copy.
TABLES = (
    "numbers", "surfaces", "segments", "counters", "blocks", "segment_numbers", "adjustments", "audit", "api_keys",
    "policies", "history", "visitor_sums", "prediction_versions", "events", "checkpoints", "deleted_events",
    "deleted_segments", "facts",
)  # fmt: skip


class SqlStore(Store):
    """A store in SQL tables; everything that differs between databases is in ``Database``.

    A method that writes hands one function to ``Database.write``; the statements are in ``sql_events``,
    ``sql_surfaces``, ``sql_blocks`` and ``sql_metadata``.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        self.database.close()

    def snapshot(self) -> AbstractContextManager[None]:
        """Inside the block, all reads of this thread see the same state of the store."""
        return self.database.snapshot()

    # Facts

    def get(self, key: str) -> bytes | None:
        with self.database.reading() as session:
            return sql_metadata.read_fact(session, key)

    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        """Writes a fact and returns the value stored afterwards; see ``Store.put``."""

        def work(session: Session) -> bytes:
            sql_metadata.write_fact(session, key, value, only_if_absent, expected)
            return sql_metadata.read_fact(session, key) or b""

        return self.database.write(work)

    # Surfaces and counters

    def surfaces(self) -> list[Surface]:
        with self.database.reading() as session:
            return sql_surfaces.read_surfaces(session)

    def save_surface(
        self, surface: Surface, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]
    ) -> Surface:
        """Inserts (id 0) or updates a surface with its adjustments and audit entries; see ``Store.save_surface``."""

        def work(session: Session) -> Surface:
            write = sql_surfaces.update_surface if surface.id else sql_surfaces.insert_surface
            saved = write(session, surface)
            adjusted = [sql_surfaces.with_surface_id(adjustment, saved.id) for adjustment in adjustments]
            if not sql_surfaces.add_adjustments(session, adjusted):
                sql_metadata.take_numbers(session, "revision", 1)
            entries = [{**entry, "surface_id": entry.get("surface_id") or saved.id} for entry in audit]
            sql_metadata.write_entries(session, entries)
            return saved

        return self.database.write(work)

    def revision(self) -> int:
        with self.database.reading() as session:
            return int(session.run("SELECT value FROM numbers WHERE name = 'revision'")[0][0])

    def segments(self, surface_id: int, since: int = -1) -> list[Segment]:
        with self.database.reading() as session:
            return sql_surfaces.read_segments(session, surface_id, since)

    def adjust(self, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]) -> None:
        def work(session: Session) -> None:
            sql_surfaces.add_adjustments(session, adjustments)
            sql_metadata.write_entries(session, audit)

        self.database.write(work)

    def adjust_by(
        self,
        surface_id: int,
        make: Callable[[list[Segment]], Sequence[Adjustment]],
        audit: Sequence[dict[str, Any]],
    ) -> None:
        """Applies the adjustments that ``make`` returns for the current counters, while nobody else counts."""

        def work(session: Session) -> None:
            if self.database.shared:
                sql_surfaces.lock_counters(session, surface_id)
            made = make(sql_surfaces.read_segments(session, surface_id))
            sql_surfaces.add_adjustments(session, sql_surfaces.postdate_resets(session, surface_id, made))
            sql_metadata.write_entries(session, audit)

        self.database.write(work)

    def segment_names(self, surface_id: int) -> set[str]:
        with self.database.reading() as session:
            return sql_surfaces.read_segment_names(session, surface_id)

    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool:
        """Creates a segment unless ``limit`` segments exist; returns whether it exists now."""

        def work(session: Session) -> bool:
            # The number is taken first: it serialises the processes that admit segments.
            revision = sql_metadata.take_numbers(session, "revision", 1)
            if sql_surfaces.missing_surfaces(session, {surface_id}):
                return False
            names = sql_surfaces.read_segment_names(session, surface_id)
            if (decided := sql_surfaces.is_admitted(names, segment, limit)) is not None:
                return decided
            row = (surface_id, segment, revision)
            session.many("INSERT INTO segments (surface_id, segment, rounds, revision) VALUES (?, ?, 0, ?)", [row])
            return True

        # Without a transaction that writes: a flood of names that are not admitted must not block writers.
        decided = sql_surfaces.is_admitted(self.segment_names(surface_id), segment, limit)
        return self.database.write(work, durable=False) if decided is None else decided

    def delete_segments(
        self,
        surface_id: int,
        revisions: Mapping[str, int | None],
        make: Callable[[list[Segment]], tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]],
    ) -> set[str]:
        """Applies the adjustments that ``make`` returns and deletes the rows that are zero then."""

        def work(session: Session) -> set[str]:
            found: list[Segment] = []
            for name, revision in sorted(revisions.items()):
                if self.database.shared:
                    sql_surfaces.lock_counters(session, surface_id, name)
                segments = sql_surfaces.read_segments(session, surface_id, only=name)
                found += [segment for segment in segments if revision in (None, segment.revision)]
            if not found:
                return set()
            adjustments, audit = make(found)
            dated = sql_surfaces.postdate_resets(session, surface_id, adjustments)
            if not sql_surfaces.add_adjustments(session, dated):
                sql_metadata.take_numbers(session, "revision", 1)
            for segment in found:
                sql_surfaces.delete_zero_rows(session, surface_id, segment.name)
            sql_metadata.write_entries(session, audit)
            return {segment.name for segment in found}

        return self.database.write(work)

    def adjustments(self) -> Iterator[Adjustment]:
        with self.database.reading() as session:
            rows = session.stream(f"SELECT {ADJUSTMENT_COLUMNS} FROM adjustments ORDER BY id")
            yield from map(adjustment_of, rows)

    # Blocks of time and numbers of a segment

    def blocks(
        self, surface_id: int, segment: str, known: Mapping[BlockKey, TimeBlock] | None = None
    ) -> dict[BlockKey, TimeBlock]:
        with self.database.reading() as session:
            return sql_blocks.read_blocks(session, surface_id, segment, known or {})

    def boundaries(self, surface_id: int, segment: str) -> tuple[int, ...]:
        with self.database.reading() as session:
            return sql_blocks.read_boundaries(session, surface_id, segment)

    def compact(self, surface_id: int, segment: str, now: int, least: int = 0) -> int:
        """Merges blocks. Not synced to disk: merging changes no sum, and can be done again."""
        with self.database.reading() as session:
            planned = sql_blocks.plan_compaction(session, surface_id, segment, second_of(now), least)
        if planned is None:
            return 0
        apply = partial(sql_blocks.apply_compaction, surface_id=surface_id, segment=segment, planned=planned)
        try:
            self.database.write(apply, durable=False)
        except sql_blocks.OutdatedCompaction:
            return 0
        return planned.n_rows - len(planned.blocks)

    def numbers(self, surface_id: int, segment: str) -> dict[str, int]:
        with self.database.reading() as session:
            return sql_blocks.read_numbers(session, surface_id, segment)

    def set_number(
        self,
        surface_id: int,
        segment: str,
        name: str,
        value: int,
        *,
        expected: int | None,
        audit: Sequence[dict[str, Any]] = (),
    ) -> bool:
        """Writes a number of a segment if the stored one is as expected; see ``Store.set_number``."""

        def work(session: Session) -> bool:
            revision = sql_metadata.take_numbers(session, "revision", 1)
            if sql_surfaces.missing_surfaces(session, {surface_id}):
                return False
            if not sql_blocks.write_number(session, surface_id, segment, name, value, expected):
                return False
            # Other processes must solve the policies of the segment again.
            session.run(
                "UPDATE segments SET revision = ? WHERE surface_id = ? AND segment = ?", (revision, surface_id, segment)
            )
            sql_metadata.write_entries(session, audit)
            return True

        return self.database.write(work)

    # Versions of predicted losses

    def prediction_version(self, surface_id: int, segment: str) -> PredictionVersion | None:
        with self.database.reading() as session:
            return sql_predictions.read_version(session, surface_id, segment)

    def save_prediction_version(
        self, surface_id: int, segment: str, version: PredictionVersion, *, expected: int | None, unused_before: int
    ) -> bool:
        """Inserts a version of predictions if the newest one is as expected; see ``Store.save_prediction_version``."""

        def work(session: Session) -> bool:
            sql_metadata.take_numbers(session, "revision", 1)  # one process at a time
            if sql_surfaces.missing_surfaces(session, {surface_id}):
                return False
            if not sql_predictions.insert_version(session, surface_id, segment, version, expected):
                return False
            sql_predictions.delete_unused(session, surface_id, unused_before)
            return True

        return self.database.write(work)

    # Events

    def save_events(self, events: Sequence[Event]) -> list[Event | None]:
        """Inserts events that are not stored yet. Not synced to disk: the token carries what a power cut would lose."""
        if not events:
            return []
        by_id = sql_events.first_by_id(events)

        def work(session: Session) -> list[Event | None]:
            new = session.insert_events([row_of(by_id[id]) for id in sorted(by_id)])
            totals = BatchTotals()
            for id in new:
                totals.count_decision(by_id[id])
            sql_metadata.add_history(session, totals)
            known = sql_events.select_events(session, sorted(by_id.keys() - new))
            gone = sql_surfaces.missing_surfaces(
                session, {by_id[id].surface_id for id in by_id.keys() - new - known.keys()}
            )
            stored = by_id | known
            return [None if event.surface_id in gone else stored[event.id] for event in events]

        return self.database.write(work, durable=False)

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        wanted = ids if len(ids) == 1 else sorted(set(ids))
        return {row[0]: event_of(row) for row in self.database.event_rows(wanted)} if ids else {}

    def may_have_event(self, id: bytes) -> bool:
        return self.database.may_have_event(id)

    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        """Applies feedback in one transaction; an event that is not stored yet is taken from its token."""
        if not feedback:
            return []
        ids = sorted({given.event.id for given in feedback})

        def work(session: Session) -> list[Status]:
            surface_ids = {id for (id,) in session.run("SELECT id FROM surfaces")}
            known = sql_predictions.with_known_versions(session, feedback)
            events = [given.event for given in known if given.event.surface_id in surface_ids]
            inserted = sql_events.insert_unknown(session, events, now) if self.database.shared else []
            stored = sql_events.select_events(session, ids, lock=True)
            resets = sql_events.last_resets(session, stored.values())
            deleted = sql_deletion.statuses_of_deleted(session, [one for one in events if one.id not in stored])
            outcome = apply_batch(stored, known, surface_ids, resets, now, deleted)
            for event in inserted:
                outcome.totals.count_decision(event)
            session.insert_events([row_of(event) for event in outcome.new])
            sql_events.update_events(session, outcome.changed)
            sql_surfaces.add_counters(session, outcome.totals)
            return outcome.statuses

        return self.database.write(work)

    def settle_overdue(self, now: int, limit: int) -> int:
        def work(session: Session) -> int:
            overdue = session.run(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NULL AND expires_at < ?"
                f" ORDER BY expires_at LIMIT ?{self.database.skip_locked}",
                (now, limit),
            )
            changes = [(before, *settle_at_deadline(before, now)) for before in map(event_of, overdue)]
            return sql_events.write_settled(session, changes, now)

        # Usually nothing is overdue; then no transaction that writes is needed.
        with self.database.reading() as session:
            due = session.run("SELECT 1 FROM events WHERE settled_at IS NULL AND expires_at < ? LIMIT 1", (now,))
        return self.database.write(work) if due else 0

    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int:
        """Settles open events of a segment as if no more clicks came."""

        def work(session: Session) -> int:
            rows = session.run(
                f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NULL AND surface_id = ? AND segment = ?"
                f" AND created_at <= ? ORDER BY id LIMIT ?{self.database.skip_locked}",
                (surface_id, segment, now, limit),
            )
            changes = [(before, *sql_events.settle_now(before, now)) for before in map(event_of, rows)]
            return sql_events.write_settled(session, changes, now)

        return self.database.write(work)

    def import_events(self, events: Iterable[Event]) -> int:
        """Inserts settled events of another log, 1000 per transaction; events stored before are not counted again."""
        insert = sql_events.import_batch
        return sum(self.database.write(partial(insert, events=batch)) for batch in batches(events, IMPORT_BATCH))

    def settled(self, surface_id: int | None = None) -> Iterator[Event]:
        chosen = "" if surface_id is None else " AND surface_id = ?"
        values = () if surface_id is None else (surface_id,)
        with self.database.reading() as session:
            sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE settled_at IS NOT NULL{chosen}"
            yield from map(event_of, session.stream(sql, values))

    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]:
        """Yields events with ``since <= created_at < until`` by creation time, including open ones."""
        with self.database.reading() as session:
            sql = (
                f"SELECT {EVENT_COLUMNS} FROM events"
                " WHERE surface_id = ? AND created_at >= ? AND created_at < ? ORDER BY created_at"
            )
            yield from map(event_of, session.stream(sql, (surface_id, since, until)))

    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        """Returns, for each arm, the events of a range, and those settled by final feedback; one of each visitor."""
        with self.database.reading() as session:
            rows = session.run(
                "SELECT arm, count(*), sum(CASE WHEN settled_by = 'final' THEN 1 ELSE 0 END) FROM events e"
                " WHERE surface_id = ? AND created_at >= ? AND created_at < ? AND settled_by <> 'import'"
                f" AND {sql_visitors.FIRST_OF_VISITOR} GROUP BY arm",
                (surface_id, since, until, started),
            )
        return {arm: (int(events), int(answered)) for arm, events, answered in rows}

    def oldest_open(self, surface_id: int) -> int | None:
        with self.database.reading() as session:
            # By deadlines, which have an index.
            sql = (
                "SELECT created_at FROM events WHERE settled_at IS NULL AND surface_id = ? ORDER BY expires_at LIMIT 1"
            )
            rows = session.run(sql, (surface_id,))
            return int(rows[0][0]) if rows else None

    def open_events(self) -> int:
        with self.database.reading() as session:
            return int(session.run("SELECT count(*) FROM events WHERE settled_at IS NULL")[0][0])

    # Deletion

    def delete_events(
        self,
        ids: Sequence[bytes],
        now: int,
        key: bytes,
        audit: Callable[[Sequence[Event]], Sequence[dict[str, Any]]],
    ) -> int:
        """Deletes events and adds them to checkpoints in one transaction; see ``Store.delete_events``."""

        def work(session: Session) -> int:
            found = list(sql_events.select_events(session, sorted(set(ids)), lock=True).values())
            if found:
                sql_deletion.delete_events(session, found, now, key, remember=True)
                sql_metadata.write_entries(session, audit(found))
            return len(found)

        return self.database.write(work)

    def delete_old_events(
        self,
        surface_id: int,
        before: int,
        late_before: int,
        limit: int,
        now: int,
        key: bytes,
        audit: Callable[[int], Sequence[dict[str, Any]]],
    ) -> int:
        """Deletes events that are too old, in one transaction; see ``Store.delete_old_events``."""
        where = "WHERE surface_id = ? AND created_at < ? AND settled_at IS NOT NULL AND late_until < ?"
        chosen = (surface_id, before, late_before)

        def work(session: Session) -> int:
            rows = session.run(
                f"SELECT {EVENT_COLUMNS} FROM events {where} ORDER BY created_at LIMIT ?{self.database.skip_locked}",
                (*chosen, limit),
            )
            if rows:
                sql_deletion.delete_events(session, list(map(event_of, rows)), now, key, remember=False)
                until = sql_deletion.read_deleted(session, surface_id).until
                sql_deletion.forget_deleted(session, surface_id, until + 1, late_before)
                sql_metadata.write_entries(session, audit(len(rows)))
            return len(rows)

        # Usually nothing is too old; then no transaction that writes is needed.
        with self.database.reading() as session:
            due = session.run(f"SELECT 1 FROM events {where} LIMIT 1", chosen)
        return self.database.write(work) if due else 0

    def events_of_visitor(self, visitor: bytes, limit: int) -> list[bytes]:
        with self.database.reading() as session:
            return [id for (id,) in session.run("SELECT id FROM events WHERE visitor = ? LIMIT ?", (visitor, limit))]

    def deleted_ids(self, ids: Sequence[bytes]) -> set[bytes]:
        with self.database.reading() as session:
            return {id for id in ids if session.run("SELECT 1 FROM deleted_events WHERE id = ?", (id,))}

    def deleted(self, surface_id: int) -> DeletedEvents:
        with self.database.reading() as session:
            return sql_deletion.read_deleted(session, surface_id)

    def checkpoints(self, surface_id: int | None = None) -> Iterator[SignedCheckpoint]:
        with self.database.reading() as session:
            yield from sql_deletion.read_checkpoints(session, surface_id)

    def delete_surface(self, surface: Surface, audit: Callable[[int], Sequence[dict[str, Any]]]) -> None:
        """Deletes a surface with all its rows in one transaction; see ``Store.delete_surface``."""

        def work(session: Session) -> None:
            if sql_surfaces.locked_version(session, surface.id, self._lock("UPDATE")) != surface.version:
                raise VersionConflict(f"surface {surface.name!r} was changed by another client: read it again")
            events = sql_deletion.delete_rows(session, TABLES, surface.id)
            sql_deletion.delete_facts(session, surface.id)
            session.run("DELETE FROM surfaces WHERE id = ?", (surface.id,))
            sql_metadata.write_entries(session, audit(events))

        self.database.write(work)

    def purge_segment(
        self,
        surface_id: int,
        segment: str,
        now: int,
        audit: Callable[[Sequence[Segment], int], Sequence[dict[str, Any]]],
    ) -> bool:
        """Deletes a segment with all its rows in one transaction; see ``Store.purge_segment``."""

        def work(session: Session) -> bool:
            learners = sql_surfaces.locked_learners(session, surface_id, self._lock("UPDATE"))
            keys = [counter_key(segment, number) for number in range(learners)]
            found = [one for key in keys for one in sql_surfaces.read_segments(session, surface_id, only=key)]
            if not found:
                return False
            sql = "SELECT max(created_at) FROM events WHERE surface_id = ? AND segment = ?"
            latest = session.run(sql, (surface_id, segment))[0][0]
            events = sql_deletion.delete_rows(session, TABLES, surface_id, keys)
            row = (surface_id, segment, max(now, latest or 0))  # a clock may have been ahead
            session.many("INSERT INTO deleted_segments (surface_id, segment, deleted_at) VALUES (?, ?, ?)", [row])
            sql_metadata.write_entries(session, audit(found, events))
            return True

        return self.database.write(work)

    def forget_segments(self, before: int) -> None:
        with self.database.reading() as session:
            due = session.run("SELECT 1 FROM deleted_segments WHERE deleted_at < ? LIMIT 1", (before,))
        if due:
            self.database.write(lambda session: sql_deletion.forget_segments(session, before))

    def forget_visitor_sums(self, surface_id: int, before: int) -> None:
        chosen = (surface_id, before - before % HOUR)
        with self.database.reading() as session:
            due = session.run("SELECT 1 FROM visitor_sums WHERE surface_id = ? AND hour < ? LIMIT 1", chosen)
        if due:
            self.database.write(lambda session: sql_visitors.delete_visitor_sums(session, *chosen))

    def _lock(self, strength: str) -> str:
        """Returns the clause that locks a row, if other processes may write."""
        return f" FOR {strength}" if self.database.shared else ""

    # Keys, audit log, history, policies

    def keys(self) -> list[dict[str, Any]]:
        with self.database.reading() as session:
            return sql_metadata.read_keys(session)

    def save_key(self, key: dict[str, Any]) -> None:
        """Inserts an API key, or replaces the one with the same ``id``."""
        self.database.write(lambda session: sql_metadata.write_key(session, key))

    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Returns the newest entries first, each with its ``id``; ``before`` continues below this id."""
        with self.database.reading() as session:
            return sql_metadata.read_entries(session, surface_id, limit, before)

    def write_audit(self, entries: Sequence[dict[str, Any]]) -> None:
        self.database.write(lambda session: sql_metadata.write_entries(session, entries))

    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        """Returns totals per time bucket, segment and arm; see ``Store.history``."""
        with self.database.reading() as session:
            return sql_metadata.read_history(session, surface_id, since, until, step)

    def visitor_sums(self, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
        """Returns totals per arm and bucket of visitors; see ``Store.visitor_sums``."""
        with self.database.reading() as session:
            return sql_visitors.read_visitor_sums(session, surface_id, segment, since, until)

    def save_policy(self, policy_id: str, surface_id: int, segment: str, at: int, body: bytes) -> None:
        """Stores a policy and thins old ones. Not synced to disk, because a policy can be computed again."""
        row = (policy_id, surface_id, segment, at, body)

        def work(session: Session) -> None:
            if sql_surfaces.locked_version(session, surface_id, self._lock("KEY SHARE")) is not None:
                sql_metadata.write_policy(session, row)

        self.database.write(work, durable=False)

    def policy(self, policy_id: str) -> bytes | None:
        with self.database.reading() as session:
            return sql_metadata.read_policy(session, policy_id)

    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]:
        """Returns policies saved at ``since`` or later, oldest first; evenly sampled if more than ``limit``."""
        with self.database.reading() as session:
            return sql_metadata.read_policies(session, surface_id, segment, since, limit)

    # Whole tables, for migration to another store

    def is_empty(self) -> bool:
        """Returns whether the store has no surfaces, events, keys or audit entries."""
        with self.database.reading() as session:
            used = (
                session.run(f"SELECT 1 FROM {name} LIMIT 1") for name in ("surfaces", "events", "api_keys", "audit")
            )
            return not any(used)

    def count_rows(self, tables: Sequence[str] = TABLES) -> int:
        with self.database.reading() as session:
            return sum(session.run(f"SELECT count(*) FROM {name}")[0][0] for name in tables)

    def columns(self, table: str) -> list[str]:
        with self.database.reading() as session:
            return session.columns(table)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        with self.database.reading() as session:
            yield from session.stream(f"SELECT {', '.join(columns)} FROM {table}")

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row], *, replace: bool = False) -> None:
        """Inserts rows unchanged; with ``replace``, deletes the existing rows first."""

        def work(session: Session) -> None:
            if replace:
                session.run(f"DELETE FROM {table}")
            session.load(table, columns, rows)

        self.database.write(work)
