"""The store: everything that the service keeps, in one SQLite file or one PostgreSQL database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...extras import install_command
from ..events import Event, Feedback, Lease
from ..model import FeedbackMode, Status, Surface
from . import deletion, events, learners, records, totals
from .database import Database, Session, SqliteDatabase, StoreError, Unstorable
from .events import LOOKUP, event_of
from .records import Entries

_log = logging.getLogger("bothworlds")
P = ParamSpec("P")
T = TypeVar("T")

SETTLE_LIMIT = 400  # events that a transaction can settle, see ``postgres``
MOVING = "moving"  # a fact that exists while a migration fills the store
DROP_BATCH = 500  # events in one transaction


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


# Methods of the store, each of a function of a session, which has the contract of both


def _read(work: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Returns a method that calls the function in one consistent view."""

    @wraps(work)
    def method(store: Store, /, *args: P.args, **options: P.kwargs) -> T:
        with store.database.reading() as session:
            return work(session, *args, **options)

    return method


def _stream(work: Callable[Concatenate[Session, P], Iterator[T]]) -> Callable[Concatenate[Store, P], Iterator[T]]:
    """Returns a method that yields what the function yields in one consistent view."""

    @wraps(work)
    def method(store: Store, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        with store.database.reading() as session:
            yield from work(session, *args, **options)

    return method


def _write(work: Callable[Concatenate[Session, P], T], *, durable: bool = True) -> Callable[Concatenate[Store, P], T]:
    """Returns a method that calls the function in one transaction."""

    @wraps(work)
    def method(store: Store, /, *args: P.args, **options: P.kwargs) -> T:
        return store.database.write(lambda session: work(session, *args, **options), durable=durable)

    return method


def _leased(
    work: Callable[Concatenate[Session, P], T], *, durable: bool = True
) -> Callable[Concatenate[Store, Lease, P], T]:
    """Returns a method that takes a lease first, and calls the function in one transaction of its holder."""

    @wraps(work)
    def method(store: Store, lease: Lease, /, *args: P.args, **options: P.kwargs) -> T:
        return store._write_leased(lease, lambda session: work(session, *args, **options), durable=durable)

    return method


class Store:
    """Everything that the service keeps; the SQL is in the modules beside this one.

    All methods block, may be called in any thread, and raise StoreError. Several processes can share a PostgreSQL
    store (``shared``); a SQLite file belongs to one process. A method that writes is one transaction unless it says
    otherwise, durable when it returns, with these exceptions, which survive kill -9 but are not synced to disk:
    ``write`` without feedback, ``save_snapshot``, ``save_policy``, ``acquire``. A
    call that raised StoreError can be repeated. Unstorable is raised for a value that the database cannot hold.

    Methods that take a lease raise LostLease, and write nothing, if another process has taken it: its row stays locked
    until the transaction ends, so that no two holders ever write. Methods that take audit entries write them in the
    same transaction.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.shared = database.shared

    def close(self) -> None:
        """Closes all connections; every later call raises StoreError."""
        self.database.close()

    def consistent_reads(self) -> AbstractContextManager[None]:
        """Inside the block, all reads of this thread see the same state of the store, but for lookups by ids."""
        return self.database.snapshot()

    def _write_leased(self, lease: Lease, work: Callable[[Session], T], *, durable: bool = True) -> T:
        def checked(session: Session) -> T:
            events.check_lease(session, lease)
            return work(session)

        return self.database.write(checked, durable=durable)

    # Facts, keys and the audit log

    get = _read(records.read_fact)
    put = _write(records.write_fact)
    change = _write(records.change_fact)
    keys = _read(records.read_keys)
    save_key = _write(records.write_key)
    audit = _read(records.read_entries)
    write_audit = _write(records.write_entries)

    # The lease: the right to settle events, and to do all housekeeping

    def acquire(self, owner: str, seconds: float) -> Lease | None:
        """Takes the lease, or renews it if ``owner`` has it; None while another process has it.

        It lasts for ``seconds`` by the clock of the database, the same for all processes. ``owner`` names one process.
        Usually reads only: the lease is renewed after half of its time. A SQLite store always gives it.
        """
        return events.acquire_lease(self.database, owner, seconds)

    release = _write(events.release_lease, durable=False)

    # Surfaces and learners

    surfaces = _read(learners.read_surfaces)
    revision = _read(learners.read_revision)
    last_numbers = _read(events.read_last_numbers)
    save_surface = _write(learners.write_surface)
    reset_learners = _write(learners.reset_learners)

    def delete_surface(self, surface: Surface, audit: Entries) -> None:
        """Deletes a surface and everything that belongs to it, except the audit log.

        Raises VersionConflict if the stored version is not that of ``surface``. The first transaction makes the surface
        invisible for good; its events are then deleted in small ones, which ``erase`` continues if they are
        interrupted.
        """
        self.database.write(partial(learners.mark_surface, surface=surface, audit=audit))
        self._drop_marked()

    def _drop_marked(self) -> None:
        while self.database.write(partial(deletion.drop_marked, limit=DROP_BATCH), durable=False):
            continue

    # Events

    settled_after = _read(events.read_settled_after)
    settled = _stream(events.stream_settled)
    open_events = _read(events.count_open)
    feedback_counts = _read(events.feedback_counts)

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
        work = partial(events.write_events, decisions=decisions, feedback=feedback, now=now)
        return self.database.write(work, durable=bool(feedback))

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        """Returns the stored events among these ids, but for deleted ones.

        In SQLite, it waits for no other call, and may be called in the thread of the event loop.
        """
        return {row[0]: event_of(row) for row in self.database.lookup(LOOKUP, ids)}

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
            due = events.due_events(session, now, limit, surface_id)
            return events.settle_events(session, due, now, as_they_come, feedback_modes)

        # Usually nothing is due; then no transaction that writes is needed.
        with self.database.reading() as session:
            surface_ids = events.surfaces_with_due(session, now)
        if not surface_ids:
            return []
        try:
            return self._write_leased(lease, work)
        except Unstorable:
            pass
        settled: list[Event] = []
        for surface_id in surface_ids:
            try:
                settled += self._write_leased(lease, partial(work, surface_id=surface_id))
            except Unstorable as error:
                _log.error("events of surface number %d are not settled: %s", surface_id, error)
                postpone = partial(events.postpone_events, surface_id=surface_id, now=now, limit=limit)
                self._write_leased(lease, postpone)
        return settled

    def learner_events(
        self, learner_id: int, after: int, until: int | None = None, batch: int = 1000
    ) -> Iterator[list[Event]]:
        """Yields the settled events of a learner after a number, up to another, in order; with deleted ones that were
        not erased. Every batch is a read of its own."""
        while found := self._learner_batch(learner_id, after, until, batch):
            yield found
            after = found[-1].number or 0
            if len(found) < batch:
                return

    _learner_batch = _read(events.read_learner_events)

    import_events = _write(events.import_events)

    # Deletion

    delete_events = _write(deletion.delete_events)
    events_of_visitor = _read(events.read_visitor_ids)
    deleted = _read(deletion.read_deleted)
    delete_old_events = _leased(deletion.delete_old_events)
    uncovered = _read(deletion.read_uncovered)

    def deleted_ids(self, ids: Sequence[bytes]) -> set[bytes]:
        """Returns those of these ids that ``delete_events`` has deleted and that could still come back."""
        return {id for (id,) in self.database.lookup("SELECT id FROM events WHERE deleted AND id IN ?", ids)}

    def erase(self, lease: Lease, now: int, limit: int) -> int:
        """Erases the content of deleted events that the oldest snapshot of their learner covers, or a reset.

        Also forgets the ids of deleted events whose late window has ended, and finishes deletions of learners and
        surfaces. Up to ``limit`` of each; returns how many events it changed.
        """
        with self.database.reading() as session:
            marked = deletion.has_marked(session)
        if marked:
            self._drop_marked()
        return self._write_leased(lease, partial(deletion.erase_events, now=now, limit=limit))

    # Snapshots of states, and policies

    save_snapshot = _leased(learners.write_snapshot, durable=False)
    drop_snapshots = _leased(learners.drop_snapshots)
    snapshot = _read(learners.read_snapshot)
    save_policy = _write(records.write_policy, durable=False)
    policies = _read(records.read_policies)

    # Totals

    history = _read(totals.read_history)
    endings = _read(totals.read_endings)
    visitor_sums = _read(totals.read_visitor_sums)
    forget_visitor_sums = _write(totals.forget_visitor_sums)

    # Whole tables, for migration to another store

    is_empty = _read(records.is_empty)
    count_rows = _read(records.count_rows)
    columns = _read(records.read_columns)
    rows = _stream(records.stream_rows)
    fill = _write(records.fill)

    # After these, the names are no modules any more
    learners = _read(learners.read_learners)
    events = _stream(events.stream_events)
