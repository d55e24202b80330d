"""The store: everything that the service keeps, in one SQLite file or one PostgreSQL database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...extras import install_command
from ..events import Event, Feedback, Learner, Lease
from ..model import FeedbackMode, Status, Surface
from . import deletion, events, learners, records, totals
from .database import Database, Row, Session, SqliteDatabase, StoreError, Unstorable
from .deletion import DeletedEvents
from .events import COLUMNS, EVENTS, LOOKUP, event_of
from .totals import VisitorSums

_log = logging.getLogger("bothworlds")
_surface = msgspec.json.Decoder(Surface).decode
T = TypeVar("T")
Entries = Sequence[dict[str, Any]]

SETTLE_LIMIT = 400  # events that a transaction can settle, see ``postgres``
MAX_NUMBER = 1 << 62
MOVING = "moving"  # a fact that exists while a migration fills the store
IMPORT_BATCH = DROP_BATCH = 500  # events in one transaction

# In the order in which they can be filled: referenced tables first; facts last, because they mark a complete copy.
TABLES = (
    "numbers", "lease", "surfaces", "logs", "learners", "events", "snapshots", "policies", "minutes", "visitor_hours",
    "audit", "keys", "facts",
)  # fmt: skip


def open_store(place: str, *, read_only: bool = False, alone: bool = False) -> Store:
    """Opens the store at a path (SQLite) or at a ``postgresql://`` address; creates it if needed.

    ``read_only`` does not write, and can read a store that a running service uses; with ``alone`` it refuses such a
    store, and no service can open a SQLite file meanwhile. Raises StoreError if the store cannot be opened, ValueError
    if ``place`` is neither a path nor an address.
    """
    store = Store(_open_database(place, read_only, alone))
    if store.get(MOVING) is None:
        return store
    store.close()
    raise StoreError(f"the migration of a store to {place} was interrupted: delete the store there and migrate again")


def _open_database(place: str, read_only: bool, alone: bool) -> Database:
    if place.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import PostgresDatabase
        except ImportError as error:
            raise StoreError(f"PostgreSQL needs an extra: {install_command('service')}") from error
        return PostgresDatabase(place, read_only=read_only, alone=alone)
    scheme, separator, rest = place.partition("://")
    if separator and scheme != "sqlite":
        raise ValueError(f"a store is a path or a postgresql:// address, not {scheme}://")
    path = Path(rest.removeprefix("/") if separator else place).expanduser()
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name the file in it, such as {path / 'bothworlds.db'}")
    return SqliteDatabase(path, read_only=read_only, alone=alone)


class Snapshot(NamedTuple):
    """The state of a learner after its events up to a number, encoded; ``format`` says how."""

    learner_id: int
    number: int
    format: str
    state: bytes


class Store:
    """Everything that the service keeps; the SQL is in the modules beside this one.

    All methods block, may be called in any thread, and raise StoreError. Several processes can share a PostgreSQL
    store (``shared``); a SQLite file belongs to one process. A method that writes is one transaction unless it says
    otherwise, durable when it returns, with these exceptions, which survive kill -9 but are not synced to disk:
    ``write`` without feedback, ``admit_learner``, ``use_learners``, ``save_snapshot``, ``save_policy``, ``acquire``. A
    call that raised StoreError can be repeated. Unstorable is raised for a value that the database cannot hold.

    Methods that take a lease raise LostLease, and write nothing, if another process has taken it: its row stays locked
    until the transaction ends, so that no two holders ever write.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.shared = database.shared
        self._lock_events = database.lock("UPDATE OF e")
        self._skip_events = database.lock("UPDATE OF e SKIP LOCKED")

    def close(self) -> None:
        """Closes all connections; every later call raises StoreError."""
        self.database.close()

    def consistent_reads(self) -> AbstractContextManager[None]:
        """Inside the block, all reads of this thread see the same state of the store."""
        return self.database.snapshot()

    def _read(self, work: Callable[..., T], *args: Any) -> T:
        with self.database.reading() as session:
            return work(session, *args)

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.database.reading() as session:
            return session.run(sql, values)

    def _write(self, work: Callable[[Session], T], audit: Entries = (), *, durable: bool = True) -> T:
        def audited(session: Session) -> T:
            result = work(session)
            records.write_entries(session, audit)
            return result

        return self.database.write(audited, durable=durable)

    def _write_leased(self, lease: Lease, work: Callable[[Session], T], *, durable: bool = True) -> T:
        def checked(session: Session) -> T:
            events.check_lease(session, lease, self.database.lock("KEY SHARE"))
            return work(session)

        return self.database.write(checked, durable=durable)

    # Facts: small values of the service such as secrets

    def get(self, key: str) -> bytes | None:
        """Returns the value of a fact, or None if it is absent."""
        rows = self._rows("SELECT value FROM facts WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        """Writes a fact and returns the value stored afterwards.

        With ``only_if_absent`` an existing value is kept. With ``expected`` the value is written only if the stored one
        equals ``expected`` (compare and swap).
        """

        def work(session: Session) -> bytes:
            if expected is None:
                on_conflict = "NOTHING" if only_if_absent else "UPDATE SET value = excluded.value"
                sql = f"INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO {on_conflict}"
                session.run(sql, (key, value))
            else:
                session.run("UPDATE facts SET value = ? WHERE key = ? AND value = ?", (value, key, expected))
            stored = session.run("SELECT value FROM facts WHERE key = ?", (key,))
            return bytes(stored[0][0]) if stored else b""

        return self._write(work)

    # The lease: the right to settle events, and to do all housekeeping

    def acquire(self, owner: str, seconds: float) -> Lease | None:
        """Takes the lease, or renews it if ``owner`` has it; None while another process has it.

        It lasts for ``seconds`` by the clock of the database, the same for all processes. ``owner`` names one process.
        Usually reads only: the lease is renewed after half of its time. A SQLite store always gives it.
        """
        return events.acquire_lease(self.database, owner, seconds)

    def release(self, lease: Lease) -> None:
        """Gives the lease back, if it is still held, so that another process can take it at once."""
        sql = "UPDATE lease SET until = 0 WHERE owner = ? AND fence = ?"
        self._write(lambda session: session.run(sql, (lease.owner, lease.fence)), durable=False)

    # Surfaces

    def surfaces(self) -> list[Surface]:
        """Returns all surfaces in the order of their creation."""
        return [
            _surface(body) for (body,) in self._rows("SELECT body FROM surfaces WHERE name IS NOT NULL ORDER BY id")
        ]

    def revision(self) -> int:
        """Returns a number that grows with every change of a surface or its learners by any process; cheap."""
        return int(self._rows("SELECT value FROM numbers WHERE name = 'revision'")[0][0])

    def save_surface(self, surface: Surface, audit: Entries) -> Surface:
        """Inserts a surface (id 0) or updates one, together with audit entries; returns it with its id.

        The new id is also written into the audit entries. The caller assigns item indices. Raises VersionConflict
        unless ``surface.version`` is one more than the stored version, or if the name exists.
        """

        def work(session: Session) -> Surface:
            saved = learners.write_surface(session, surface)
            records.write_entries(session, [{**e, "surface_id": e.get("surface_id") or saved.id} for e in audit])
            return saved

        return self._write(work)

    def delete_surface(self, surface: Surface, audit: Callable[[int], Entries]) -> None:
        """Deletes a surface and everything that belongs to it, except the audit log.

        ``audit`` returns the audit entries for the number of deleted events. Raises VersionConflict if the stored
        version is not that of ``surface``. The first transaction makes the surface invisible for good; its events
        are then deleted in small ones, which ``erase`` continues if they are interrupted.
        """

        def work(session: Session) -> None:
            ids = learners.mark_surface(session, surface)
            records.write_entries(session, audit(learners.mark_learners(session, ids, totals=False)))

        self._write(work)
        self._drop_marked()

    def last_numbers(self) -> dict[int, int]:
        """Returns the last number that was given to an event of each surface; cheap."""
        return dict(self._rows("SELECT surface_id, last_number FROM logs"))

    # Learners

    def learners(self, surface_id: int | None = None) -> list[Learner]:
        """Returns the learners of a surface, or of all, in the order of their creation."""
        return self._read(learners.read_learners, surface_id)

    def admit_learner(self, surface_id: int, segment: str, number: int, limit: int, now: int = 0) -> Learner | None:
        """Returns the learner of a segment and an arm; creates it if it does not exist, as used at ``now``.

        None if the surface has ``limit`` segments already, or does not exist. The default segment "" is always
        admitted and counts towards the limit.
        """
        # Without a transaction that writes: a flood of names that are not admitted must not block writers.
        with self.database.reading() as session:
            found = learners.find_learner(session, surface_id, segment, number)
            if found or not learners.is_admitted(session, surface_id, segment, limit):
                return found
        insert = partial(
            learners.insert_learner, surface_id=surface_id, segment=segment, number=number, limit=limit, now=now
        )
        return self._write(insert, durable=False)

    def use_learners(self, used_at: Mapping[int, int]) -> None:
        """Writes when learners were last used, by id, where that is later than the stored time."""
        rows = [(at, id, at) for id, at in sorted(used_at.items())]
        sql = "UPDATE learners SET used_at = ? WHERE id = ? AND used_at < ?"
        self._write(lambda session: session.many(sql, rows), durable=False)

    def reset_learners(self, ids: Collection[int], audit: Entries) -> None:
        """Takes all events that are settled so far out of the states of learners; deletes their snapshots."""
        self._write(lambda session: learners.reset_learners(session, ids), audit)

    def delete_learners(self, ids: Collection[int], audit: Callable[[int], Entries], *, totals: bool = False) -> int:
        """Deletes learners with their events, snapshots and policies; returns the number of events.

        Tokens of these events are not accepted any more; a learner of the same name is another one. ``audit`` returns
        the audit entries for the number of events. With ``totals``, the totals of segments that have no other learner
        are deleted as well. Deletes in several transactions, as ``delete_surface`` does.
        """

        def work(session: Session) -> int:
            count = learners.mark_learners(session, ids, totals=totals)
            records.write_entries(session, audit(count))
            return count

        count = self._write(work)
        self._drop_marked()
        return count

    def _drop_marked(self) -> None:
        while self._write(partial(deletion.drop_marked, limit=DROP_BATCH), durable=False):
            continue

    # Events

    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        """Writes decisions and feedback; returns a status for each piece of feedback, in order.

        A decision is inserted unless its id is stored, or its learner does not exist. So is the event of a feedback's
        token; then the feedback is merged (``outcomes.merged``). Feedback on an event whose learner was deleted is
        ``expired``, on one that was deleted, or whose surface does not exist, ``rejected``.

        If the database cannot hold a value, surfaces are written one by one; feedback on those that fail is
        ``rejected``.
        """
        try:
            return self._write_batch(decisions, feedback, now)
        except Unstorable:
            pass
        statuses: list[Status] = ["rejected"] * len(feedback)
        for surface_id in sorted({event.surface_id for event in (*decisions, *(given.event for given in feedback))}):
            chosen = [k for k, given in enumerate(feedback) if given.event.surface_id == surface_id]
            own = [event for event in decisions if event.surface_id == surface_id]
            try:
                written = self._write_batch(own, [feedback[k] for k in chosen], now)
            except Unstorable as error:
                _log.error("decisions and feedback of surface number %d are not stored: %s", surface_id, error)
                continue
            for k, status in zip(chosen, written, strict=True):
                statuses[k] = status
        return statuses

    def _write_batch(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        if not decisions and not feedback:
            return []
        lock = self._lock_events
        work = partial(events.write_events, decisions=decisions, feedback=feedback, now=now, lock=lock)
        return self.database.write(work, durable=bool(feedback))

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        """Returns the stored events among these ids, but for deleted ones.

        In SQLite, it waits for no other call, and may be called in the thread of the event loop.
        """
        return {row[1]: event_of(row) for row in self.database.lookup(LOOKUP, ids)}

    def settle(
        self,
        lease: Lease,
        now: int,
        as_they_come: Mapping[int, bool],
        feedback_modes: Mapping[int, FeedbackMode],
        limit: int,
    ) -> list[Event]:
        """Settles up to ``limit`` events that are ripe (``outcomes.settled_by``); returns them by surface and number.

        They get the next numbers of their surface in the order of their creation, and are added to the totals, in one
        transaction. Both mappings are by surface id; events of surfaces that are not in ``feedback_modes`` wait. The
        limit should be at most ``SETTLE_LIMIT``, see ``postgres``.

        If a surface cannot be settled, the others are, and it is tried again after a minute.
        """

        def work(session: Session, surface_id: int | None = None) -> list[Event]:
            due = events.due_events(session, now, limit, self._skip_events, surface_id)
            return events.settle_events(session, due, now, as_they_come, feedback_modes)

        # Usually nothing is due; then no transaction that writes is needed.
        if not self._rows("SELECT 1 FROM events WHERE due_at < ? LIMIT 1", (now,)):
            return []
        try:
            return self._write_leased(lease, work)
        except Unstorable:
            pass
        settled: list[Event] = []
        for (surface_id,) in sorted(self._rows("SELECT DISTINCT +surface_id FROM events WHERE due_at < ?", (now,))):
            try:
                settled += self._write_leased(lease, partial(work, surface_id=surface_id))
            except Unstorable as error:
                _log.error("events of surface number %d are not settled: %s", surface_id, error)
                self._write_leased(lease, partial(self._postpone, surface_id=surface_id, now=now, limit=limit))
        return settled

    def _postpone(self, session: Session, surface_id: int, now: int, limit: int) -> None:
        due = events.due_events(session, now, limit, self._skip_events, surface_id)
        events.postpone_events(session, due, now)

    def settled_after(self, surface_id: int, number: int, limit: int) -> list[Event]:
        """Returns the next settled events of a surface after a number, with deleted ones that were not erased."""
        where = "e.surface_id = ? AND e.number > ? AND e.listed IS NOT NULL ORDER BY e.number LIMIT ?"
        return self._select(where, (surface_id, number, limit))

    def learner_events(
        self, learner_id: int, after: int, until: int | None = None, batch: int = 1000
    ) -> Iterator[list[Event]]:
        """Yields the settled events of a learner after a number, up to another, in order; with deleted ones that were
        not erased. Every batch is a read of its own."""
        where = "e.learner_id = ? AND e.number > ? AND e.number <= ? AND e.listed IS NOT NULL ORDER BY e.number LIMIT ?"
        last = MAX_NUMBER if until is None else until
        while found := self._select(where, (learner_id, after, last, batch)):
            yield found
            after = found[-1].number or 0
            if len(found) < batch:
                return

    def settled(self, surface_id: int | None = None) -> Iterator[Event]:
        """Yields settled events that were not deleted, by surface and number, from one consistent snapshot."""
        chosen, values = ("", ()) if surface_id is None else (" AND e.surface_id = ?", (surface_id,))
        return self._stream(f"e.number IS NOT NULL{chosen} ORDER BY e.surface_id, e.number", values)

    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]:
        """Yields events with ``since <= created_at < until`` by creation time, with open ones, without deleted ones."""
        where = "e.surface_id = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.created_at"
        return self._stream(where, (surface_id, since, until))

    def _select(self, where: str, values: Row) -> list[Event]:
        return list(map(event_of, self._rows(f"SELECT {COLUMNS} FROM {EVENTS} WHERE {where}", values)))

    def _stream(self, where: str, values: Row) -> Iterator[Event]:
        with self.database.reading() as session:
            sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE NOT e.deleted AND {where}"
            yield from map(event_of, session.stream(sql, values))

    def open_events(self) -> int:
        """Returns the number of open events."""
        return int(self._rows("SELECT count(*) FROM events WHERE due_at IS NOT NULL")[0][0])

    def outstanding(self, surface_id: int) -> int:
        """Returns the number of open events of a surface."""
        # The sign excludes an index that has all events of the surface.
        sql = "SELECT count(*) FROM events WHERE due_at IS NOT NULL AND +surface_id = ?"
        return int(self._rows(sql, (surface_id,))[0][0])

    def import_events(self, lease: Lease | None, imported: Iterable[Event]) -> int:
        """Inserts events that are settled by "import", unless they are stored or were deleted; returns how many.

        They get numbers in the order of the arguments, which must have learners, and are in no totals. One log may be
        imported into several surfaces. Writes ``IMPORT_BATCH`` events per transaction. A process without the lease may
        import too: the log of the surface stays locked from the first number to the end of the transaction.
        """
        remaining, count = iter(imported), 0
        while batch := list(islice(remaining, IMPORT_BATCH)):
            work = partial(events.import_batch, events=batch)
            count += self._write(work) if lease is None else self._write_leased(lease, work)
        return count

    # Deletion

    def delete_events(self, ids: Sequence[bytes], audit: Callable[[Sequence[Event]], Entries]) -> int:
        """Deletes the stored events among these ids; returns how many. None of them is ever stored again.

        They are not in exports, lookups and lists any more, and have no visitor. An open event is gone at once, and is
        never learned from; the content of a settled one is erased by ``erase``. Totals and states stay as they are.
        ``audit`` returns the audit entries for the deleted events, if there are any.
        """

        def work(session: Session) -> int:
            found = deletion.delete_events(session, ids, self._lock_events)
            records.write_entries(session, audit(found) if found else ())
            return len(found)

        return self._write(work)

    def events_of_visitor(self, visitor: bytes, limit: int) -> list[bytes]:
        """Returns the ids of up to ``limit`` stored events with this keyed hash of a visitor."""
        rows = self._rows(f"SELECT e.id FROM {EVENTS} WHERE e.visitor = ? LIMIT ?", (visitor, limit))
        return [id for (id,) in rows]

    def deleted_ids(self, ids: Sequence[bytes]) -> set[bytes]:
        """Returns those of these ids that ``delete_events`` has deleted and that could still come back."""
        return {id for (id,) in self.database.lookup("SELECT id FROM events WHERE deleted AND id IN ?", ids)}

    def deleted(self, surface_id: int) -> DeletedEvents:
        """Returns how many events of a surface were deleted, and up to when and to which number all old ones."""
        sql = "SELECT deleted, deleted_until, deleted_number FROM logs WHERE surface_id = ?"
        return next((DeletedEvents(*row) for row in self._rows(sql, (surface_id,))), DeletedEvents())

    def erase(self, lease: Lease, now: int, limit: int) -> int:
        """Erases the content of deleted events that the oldest snapshot of their learner covers, or a reset.

        Also forgets the ids of deleted events whose late window has ended, and finishes deletions of learners and
        surfaces. Up to ``limit`` of each; returns how many events it changed.
        """
        if self._rows(
            "SELECT 1 FROM learners WHERE deleted UNION ALL SELECT 1 FROM surfaces WHERE name IS NULL LIMIT 1"
        ):
            self._drop_marked()
        return self._write_leased(lease, partial(deletion.erase_events, now=now, limit=limit, lock=self._skip_events))

    def delete_old_events(
        self,
        lease: Lease,
        surface_id: int,
        before: int,
        late_before: int,
        limit: int,
        audit: Callable[[int], Entries],
    ) -> int:
        """Deletes settled events created before ``before`` whose late window ended before ``late_before``.

        Deletes up to ``limit`` of them, the oldest first, and returns how many; only those that the oldest snapshot of
        their learner covers, or a reset: see ``uncovered``. ``audit`` returns the audit entries for the number, if
        there are any.
        """

        def work(session: Session) -> int:
            count = deletion.delete_old_events(session, surface_id, before, late_before, limit, self._skip_events)
            records.write_entries(session, audit(count) if count else ())
            return count

        return self._write_leased(lease, work)

    def uncovered(self, surface_id: int | None = None, before: int = 0, late_before: int = 0) -> dict[int, int]:
        """Returns the learners whose oldest snapshot must cover more before events can be deleted, and which number.

        Without a surface, for ``erase``; with one, for ``delete_old_events`` with the same arguments.
        """
        return self._read(deletion.read_uncovered, surface_id, before, late_before)

    # Snapshots of states, and policies

    def save_snapshot(self, lease: Lease, learner_id: int, number: int, format: str, state: bytes) -> None:
        """Writes the state of a learner after the event of this number, or replaces it.

        Does nothing if the learner was deleted, or was reset at this number or later.
        """
        sql = (
            "INSERT INTO snapshots (learner_id, number, format, state)"
            " SELECT id, ?, ?, ? FROM learners WHERE id = ? AND NOT deleted AND reset_number < ?"
            " ON CONFLICT (learner_id, number) DO UPDATE SET format = excluded.format, state = excluded.state"
        )
        row = (number, format, state, learner_id, number)
        self._write_leased(lease, lambda session: session.run(sql, row), durable=False)

    def snapshot(self, learner_id: int, until: int | None = None) -> Snapshot | None:
        """Returns the newest snapshot of a learner, at most of number ``until``; none from before its last reset."""
        return self._snapshot(learner_id, until, "DESC")

    def oldest_snapshot(self, learner_id: int) -> Snapshot | None:
        """Returns the oldest snapshot of a learner; none from before its last reset."""
        return self._snapshot(learner_id, None, "ASC")

    def _snapshot(self, learner_id: int, until: int | None, order: str) -> Snapshot | None:
        rows = self._rows(
            "SELECT s.learner_id, s.number, s.format, s.state FROM snapshots s JOIN learners l ON l.id = s.learner_id"
            " WHERE s.learner_id = ? AND NOT l.deleted AND s.number > l.reset_number AND s.number <= ?"
            f" ORDER BY s.number {order} LIMIT 1",
            (learner_id, MAX_NUMBER if until is None else until),
        )
        return Snapshot(*rows[0]) if rows else None

    def drop_snapshots(self, lease: Lease, learner_id: int, keep: int = 2) -> None:
        """Deletes all snapshots of a learner but the newest ones."""
        newest = "SELECT number FROM snapshots WHERE learner_id = ? ORDER BY number DESC LIMIT ?"
        sql = f"DELETE FROM snapshots WHERE learner_id = ? AND number NOT IN ({newest})"
        self._write_leased(lease, lambda session: session.run(sql, (learner_id, learner_id, keep)))

    def save_policy(self, policy_id: str, learner_id: int, at: int, body: bytes) -> None:
        """Stores a policy for the dashboard.

        Of every learner the last 200 are kept, before them one per minute for an hour, one per hour for a month, and
        then one per day; thinned once a minute.
        """
        row = (policy_id, learner_id, at, body)
        self._write(lambda session: records.write_policy(session, row), durable=False)

    def policy(self, policy_id: str) -> bytes | None:
        """Returns a stored policy, or None."""
        rows = self._rows("SELECT body FROM policies WHERE id = ?", (policy_id,))
        return bytes(rows[0][0]) if rows else None

    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]:
        """Returns (at, id, body) of policies since ``since``, oldest first; evenly sampled if more than ``limit``.

        ``segment`` is a ``model.counter_key``: the name of a segment, or that and the number of an arm.
        """
        return self._read(records.read_policies, surface_id, segment, since, limit)

    # Totals

    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        """Returns totals per time bucket (``at``, by creation time), segment and arm, of events that are compared.

        Columns: ``settled`` events (``events`` is the same), ``shows``, ``clicks``, ``clicked`` (events with any
        click), ``squares`` (sum of squared clicks per event), ``late`` (clicks after settling, which no other column
        has). ``rewards`` and ``reward_squares`` are the sums of rewards, and of squared rewards per event, in units of
        2^-20. Buckets have ``step`` milliseconds, rounded down to whole minutes but at least one.
        """
        return self._read(totals.read_history, surface_id, since, until, step)

    def endings(self, surface_id: int, since: int, now: int) -> tuple[int, int, int, int]:
        """Returns how settled pages have ended that were created from ``since`` to ``now``, without uncounted ones.

        They are: confirmed, those of them that their deadline has settled, unconfirmed, those of them with a click.
        """
        return self._read(totals.read_endings, surface_id, since, now)

    def discarded(self, surface_id: int, since: int, now: int) -> tuple[int, int]:
        """Returns how many settled pages of that time were reported as not shown, and how many were not counted."""
        return self._read(totals.read_discarded, surface_id, since, now)

    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        """Returns, for each arm, the events with ``since <= created_at < until``, and those settled by final feedback.

        Of every visitor, only the first event at or after ``started`` is counted: all of them have the same arm.
        Imported, deleted and uncounted events are left out.
        """
        return self._read(events.feedback_counts, surface_id, since, until, started)

    def visitor_sums(self, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
        """Returns totals of compared events with a visitor, of the hours that begin in a range of time.

        Of one segment, or of all of them if it is None. Arms and buckets without such events are left out.
        """
        return self._read(totals.read_visitor_sums, surface_id, segment, since, until)

    def forget_visitor_sums(self, surface_id: int, before: int) -> None:
        """Deletes the totals of hours that ended before this time; reports on later hours do not change."""
        sql = "DELETE FROM visitor_hours WHERE surface_id = ? AND hour < ?"
        self._write(lambda session: session.run(sql, (surface_id, before - before % events.HOUR)))

    # Keys and audit log

    def keys(self) -> list[dict[str, Any]]:
        """Returns all API keys."""
        return [msgspec.msgpack.decode(body) for (body,) in self._rows("SELECT body FROM keys ORDER BY id")]

    def save_key(self, key: dict[str, Any]) -> None:
        """Inserts an API key, or replaces the one with the same ``id``."""
        sql = "INSERT INTO keys (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        self._write(lambda session: session.run(sql, (key["id"], msgspec.msgpack.encode(key))))

    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Returns audit entries, newest first, each with its ``id``; of all surfaces if ``surface_id`` is None.

        ``before`` continues a listing below this id.
        """
        chosen, values = ("", ()) if surface_id is None else (" AND surface_id = ?", (surface_id,))
        sql = f"SELECT id, body FROM audit WHERE id < ?{chosen} ORDER BY id DESC LIMIT ?"
        rows = self._rows(sql, (MAX_NUMBER if before is None else min(before, MAX_NUMBER), *values, limit))
        return [{**msgspec.json.decode(body), "id": id} for id, body in rows]

    def write_audit(self, entries: Entries) -> None:
        """Appends audit entries; ``surface_id`` assigns an entry to a surface."""
        self._write(lambda session: None, entries)

    # Whole tables, for migration to another store

    def is_empty(self) -> bool:
        """Returns whether the store has no surfaces, keys or audit entries."""
        return not any(self._rows(f"SELECT 1 FROM {name} LIMIT 1") for name in ("surfaces", "keys", "audit"))

    def count_rows(self, tables: Sequence[str] = TABLES) -> int:
        """Returns the number of rows in these tables."""
        return sum(self._rows(f"SELECT count(*) FROM {name}")[0][0] for name in tables)

    def columns(self, table: str) -> list[str]:
        """Returns the names of the columns of a table."""
        with self.database.reading() as session:
            return session.columns(table)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """Yields the rows of a table."""
        with self.database.reading() as session:
            yield from session.stream(f"SELECT {', '.join(columns)} FROM {table}")

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row], *, replace: bool = False) -> None:
        """Inserts rows unchanged; with ``replace``, deletes the existing rows first."""

        def work(session: Session) -> None:
            if replace:
                session.run(f"DELETE FROM {table}")
            values = ", ".join("?" * len(columns))
            session.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)

        self._write(work)
