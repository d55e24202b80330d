"""SQL on events and the lease: each event is stored, and settled, numbered and added to the totals, once.

All statements that read events join their learners, so that nothing is seen of a learner that is being deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ..events import Event, Feedback, Lease, Listed
from ..model import FeedbackMode, Status, bucket_of, imported_id
from ..outcomes import due_at, is_compared, merged, page_squares, settled_by
from .database import Database, Row, Session, StoreError, Unstorable
from .records import MAX_NUMBER

PLAIN = (
    "id", "surface_id", "learner_id", "arm", "created_at", "expires_at", "late_until", "n", "visitor", "counted",
    "shown", "clicks", "final", "late", "number", "settled_at", "settled_by", "deleted",
)  # fmt: skip
STORED = (*PLAIN, "listed", "context", "rewards", "due_at")
FLAGS = ("counted", "shown", "final", "deleted")  # numbers in SQLite
COLUMNS = ", ".join(f"e.{name}" for name in STORED[:-1])
# The sign keeps databases from reading all events of one learner after the other, instead of in the order of an index.
EVENTS = "events e JOIN learners l ON l.id = +e.learner_id AND NOT l.deleted"
LOOKUP = f"SELECT {COLUMNS} FROM {EVENTS} WHERE e.id IN ? AND NOT e.deleted"
NO_LIST = Listed((), (), 0)  # of a tombstone
UNKNOWN_MS, RETRY_MS = 1_000, 60_000  # after which an event is tried again
MINUTE, HOUR = 60_000, 3_600_000
HISTORY = ("settled", "shows", "clicks", "clicked", "squares", "late", "rewards", "reward_squares")
COUNTS = (*HISTORY, "finals", "unconfirmed", "unconfirmed_clicked", "void", "uncounted")  # columns of "minutes"
LATE = COUNTS.index("late")

_log = logging.getLogger("bothworlds")
_plain = attrgetter(*PLAIN)
_encode = msgspec.msgpack.Encoder().encode
_listed = msgspec.msgpack.Decoder(Listed).decode
_context = msgspec.msgpack.Decoder(dict[str, str]).decode
_rewards = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class LostLease(Exception):
    """Another process has the lease; nothing was written."""


def row_of(event: Event) -> Row:
    """Returns the values of an event in the order of ``STORED``."""
    context = _encode(event.context) if event.context else None
    return (*_plain(event), _encode(event.listed), context, _encoded_rewards(event), _due(event))


def event_of(row: Row) -> Event:
    """Returns the event of a row of ``COLUMNS``; a tombstone has an empty list. Raises Unstorable."""
    *plain, listed, context, rewards = row
    fields: dict[str, Any] = dict(zip(PLAIN, plain, strict=True))
    for name in FLAGS:
        if fields[name] is not None:
            fields[name] = bool(fields[name])
    try:
        fields["listed"] = NO_LIST if listed is None else _listed(listed)
        fields["context"] = {} if context is None else _context(context)
        fields["rewards"] = () if rewards is None else _rewards(rewards)
    except msgspec.DecodeError as error:
        raise Unstorable(f"event {bytes(fields['id']).hex()} cannot be read: {error}") from error
    return Event(**fields)


def _due(event: Event) -> int | None:
    return due_at(event) if event.number is None else None


def _encoded_rewards(event: Event) -> bytes | None:
    return _encode(event.rewards) if event.rewards else None


def select(session: Session, where: str, values: Row) -> list[Event]:
    """Returns the events that a condition selects."""
    return list(map(event_of, session.run(f"SELECT {COLUMNS} FROM {EVENTS} WHERE {where}", values)))


def select_events(session: Session, ids: Iterable[bytes], *, locked: bool = False) -> dict[bytes, Event]:
    """Returns the stored events among these ids, with tombstones; locks their rows if asked to."""
    lock = session.lock("UPDATE OF e") if locked else ""
    sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE e.id IN ? ORDER BY e.id{lock}"
    return {row[0]: event_of(row) for row in session.among(sql, sorted(ids))}


def read_settled_after(session: Session, surface_id: int, number: int, limit: int) -> list[Event]:
    """Returns the next settled events of a surface after a number, with deleted ones that were not erased."""
    where = "e.surface_id = ? AND e.number > ? AND e.listed IS NOT NULL ORDER BY e.number LIMIT ?"
    return select(session, where, (surface_id, number, limit))


def read_learner_events(session: Session, learner_id: int, after: int, until: int | None, limit: int) -> list[Event]:
    """Returns the next settled events of a learner after a number, up to another; see ``Store.learner_events``."""
    where = "e.learner_id = ? AND e.number > ? AND e.number <= ? AND e.listed IS NOT NULL ORDER BY e.number LIMIT ?"
    return select(session, where, (learner_id, after, MAX_NUMBER if until is None else until, limit))


def stream_settled(session: Session, surface_id: int | None = None) -> Iterator[Event]:
    """Yields settled events that were not deleted, by surface and number, from one consistent snapshot."""
    chosen, values = ("", ()) if surface_id is None else (" AND e.surface_id = ?", (surface_id,))
    return _stream(session, f"e.number IS NOT NULL{chosen} ORDER BY e.surface_id, e.number", values)


def stream_events(session: Session, surface_id: int, since: int, until: int) -> Iterator[Event]:
    """Yields events with ``since <= created_at < until`` by creation time, with open ones, without deleted ones."""
    where = "e.surface_id = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.created_at"
    return _stream(session, where, (surface_id, since, until))


def _stream(session: Session, where: str, values: Row) -> Iterator[Event]:
    sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE NOT e.deleted AND {where}"
    return map(event_of, session.stream(sql, values))


def count_open(session: Session, surface_id: int | None = None) -> int:
    """Returns the number of open events, of a surface or of all."""
    # The sign excludes an index that has all events of the surface.
    chosen, values = ("", ()) if surface_id is None else (" AND +surface_id = ?", (surface_id,))
    return int(session.run(f"SELECT count(*) FROM events WHERE due_at IS NOT NULL{chosen}", values)[0][0])


def read_visitor_ids(session: Session, visitor: bytes, limit: int) -> list[bytes]:
    """Returns the ids of up to ``limit`` stored events with this keyed hash of a visitor."""
    return [id for (id,) in session.run(f"SELECT e.id FROM {EVENTS} WHERE e.visitor = ? LIMIT ?", (visitor, limit))]


def write_events(session: Session, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
    """Inserts decisions, and those of the feedback, if they are absent; merges the feedback; see ``Store.write``.

    All processes insert in the order of ids, and lock in the order of ids afterwards.
    """
    ids = {given.event.id for given in feedback}
    known = {id for (id,) in session.among("SELECT id FROM events WHERE id IN ?", ids)}
    absent = [given.event for given in feedback if given.event.id not in known and now <= given.event.late_until]
    _insert(session, [*decisions, *_not_closed(session, absent)])
    stored = select_events(session, ids, locked=True)
    statuses: list[Status] = []
    changed: dict[bytes, Event] = {}
    totals = Totals()
    for given in feedback:
        before = stored.get(given.event.id)
        if before is None:
            statuses.append("expired")
            continue
        after, status = merged(before, given, now)
        statuses.append(status)
        if after is not before:
            stored[after.id] = changed[after.id] = after
            totals.add_late(after, after.late & ~before.late)
    columns = ("shown", "clicks", "rewards", "final", "late", "due_at", "id")
    rows = [
        (one.shown, one.clicks, _encoded_rewards(one), one.final, one.late, _due(one), one.id)
        for one in changed.values()
    ]
    session.update("events", columns, rows)
    totals.write(session)
    return _without_surface(session, feedback, statuses)


def _insert(session: Session, events: Iterable[Event]) -> None:
    """Inserts the events that are not stored, and whose learner exists, in the order of ids; the first one of an id."""
    chosen = list(events)
    sql = "SELECT id, surface_id FROM learners WHERE NOT deleted AND id IN ?"
    learners: dict[int, int] = dict(session.among(sql, {event.learner_id for event in chosen}))
    kept = [event for event in chosen if learners.get(event.learner_id) == event.surface_id]
    session.insert("events", STORED, [row_of(event) for event in sorted(kept, key=attrgetter("id"))])


def _not_closed(session: Session, absent: Sequence[Event]) -> list[Event]:
    """Returns those of these events, none of which is stored, that cannot have been deleted because of their age.

    The clock may have been ahead when they were deleted, so that their late window seems to be open.
    """
    sql = "SELECT surface_id, closed_until FROM logs WHERE surface_id IN ?"
    closed: dict[int, int] = dict(session.among(sql, {event.surface_id for event in absent}))
    return [event for event in absent if event.created_at > closed.get(event.surface_id, -1)]


def _without_surface(session: Session, feedback: Sequence[Feedback], statuses: list[Status]) -> list[Status]:
    """Returns the statuses with ``rejected`` for feedback whose surface does not exist: it is of another store."""
    if "expired" not in statuses:
        return statuses
    wanted = {given.event.surface_id for given in feedback}
    sql = "SELECT id FROM surfaces WHERE name IS NOT NULL AND id IN ?"
    exist = {id for (id,) in session.among(sql, wanted)}
    return [
        status if given.event.surface_id in exist else "rejected"
        for given, status in zip(feedback, statuses, strict=True)
    ]


# The lease


def acquire_lease(database: Database, owner: str, seconds: float) -> Lease | None:
    """Takes or renews the lease; see ``Store.acquire``. Usually reads only: it is renewed after half of its time."""
    length = round(1000 * seconds)
    with database.reading() as session:
        row = session.run(f"SELECT owner, fence, until, {database.clock} FROM lease")[0]
    holder, fence, until, now = row
    left = until - now if until - now <= length else 0  # the clock of the database was set back
    if holder == owner and 2 * left > length:
        return Lease(owner, fence)
    if database.shared and holder != owner and left > 0:
        return None

    def take(session: Session) -> list[Row]:
        if holder != owner:
            session.run(f"SELECT 1 FROM lease{session.lock('UPDATE')}")  # waits for transactions of the holder
        sql = f"UPDATE lease SET owner = ?, fence = ?, until = {database.clock} + ?"
        values = (owner, fence + (holder != owner), length, holder, fence, until)
        return session.run(f"{sql} WHERE owner = ? AND fence = ? AND until = ? RETURNING fence", values)

    taken = database.write(take, durable=False)
    return Lease(owner, taken[0][0]) if taken else None


def release_lease(session: Session, lease: Lease) -> None:
    """Gives the lease back, if it is still held, so that another process can take it at once."""
    session.run("UPDATE lease SET until = 0 WHERE owner = ? AND fence = ?", (lease.owner, lease.fence))


def check_lease(session: Session, lease: Lease) -> None:
    """Raises LostLease unless this is the lease; no other process can take it before the transaction ends."""
    lock = session.lock("KEY SHARE")  # the weakest that a new holder waits for: this one can renew the lease meanwhile
    if not session.run(f"SELECT 1 FROM lease WHERE owner = ? AND fence = ?{lock}", (lease.owner, lease.fence)):
        raise LostLease(f"{lease.owner} does not hold the lease any more")


# Settling


def read_last_numbers(session: Session) -> dict[int, int]:
    """Returns the last number that was given to an event of each surface; cheap."""
    return dict(session.run("SELECT surface_id, last_number FROM logs"))


def surfaces_with_due(session: Session, now: int) -> list[int]:
    """Returns the surfaces that have events that are due, in order; cheap if there are none."""
    return sorted(id for (id,) in session.run("SELECT DISTINCT +surface_id FROM events WHERE due_at < ?", (now,)))


def due_events(session: Session, now: int, limit: int, surface_id: int | None = None) -> list[Event]:
    """Returns up to ``limit`` open events that are due, of one surface or of all; postpones those it cannot read."""
    chosen, values = ("", ()) if surface_id is None else (" AND e.surface_id = ?", (surface_id,))
    lock = session.lock("UPDATE OF e SKIP LOCKED")
    sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE e.due_at < ?{chosen} ORDER BY e.due_at LIMIT ?{lock}"
    events, unreadable = [], []
    for row in session.run(sql, (now, *values, limit)):
        try:
            events.append(event_of(row))
        except Unstorable as error:
            _log.error("an event is not settled: %s", error)
            unreadable.append((now + RETRY_MS, row[0]))
    _postpone(session, unreadable)
    return events


def postpone_events(session: Session, surface_id: int, now: int, limit: int) -> None:
    """Leaves due events of a surface that cannot be settled for later, so that others are not held up."""
    _postpone(session, [(now + RETRY_MS, event.id) for event in due_events(session, now, limit, surface_id)])


def _postpone(session: Session, due: Sequence[tuple[int, bytes]]) -> None:
    session.update("events", ("due_at", "id"), due)


def settle_events(
    session: Session,
    events: Sequence[Event],
    now: int,
    as_they_come: Mapping[int, bool],
    modes: Mapping[int, FeedbackMode],
) -> list[Event]:
    """Settles those of these due events that are ripe, and returns them by surface and number.

    The others wait for their deadline; those of a surface that is not in ``modes`` for a second.
    """
    ripe: dict[int, list[Event]] = {}
    waiting: list[tuple[int, bytes]] = []
    for event in events:
        mode = modes.get(event.surface_id)
        if mode is None:
            waiting.append((now + UNKNOWN_MS, event.id))
        elif reason := settled_by(event, mode, now, as_they_come.get(event.surface_id, True)):
            event.settled_at, event.settled_by = now, reason
            ripe.setdefault(event.surface_id, []).append(event)
        else:
            waiting.append((event.expires_at, event.id))
    _postpone(session, waiting)
    settled: list[Event] = []
    totals = Totals()
    for surface_id, of_surface in sorted(ripe.items()):
        of_surface.sort(key=attrgetter("created_at", "id"))
        _number(session, surface_id, of_surface)
        settled += of_surface
    rows = [(event.number, event.settled_at, event.settled_by, None, event.id) for event in settled]
    session.update("events", ("number", "settled_at", "settled_by", "due_at", "id"), rows)
    for event in settled:
        totals.add(event)
    totals.write(session)
    return settled


def _number(session: Session, surface_id: int, events: Sequence[Event]) -> None:
    """Gives the next numbers of the surface to events; no other process gives any before the transaction ends."""
    sql = "UPDATE logs SET last_number = last_number + ? WHERE surface_id = ? RETURNING last_number"
    rows = session.run(sql, (len(events), surface_id))
    if not rows:
        raise Unstorable(f"surface number {surface_id} has no log")
    for number, event in enumerate(events, start=rows[0][0] - len(events) + 1):
        event.number = number


class Totals:
    """Sums over a batch of events, so that each row is written once, no matter how many events change it.

    They are of the time in which the list was drawn.
    """

    def __init__(self) -> None:
        self._minutes: dict[tuple[int, int, str, str], list[int]] = {}
        self._visitors: dict[tuple[int, int, str, str, int], list[int]] = {}

    def add(self, event: Event) -> None:
        """Adds an event that settles now, unless it is imported."""
        if is_compared(event):
            self._add_compared(event)
        elif not event.counted:
            self._count(event, "uncounted")
        elif event.settled_by == "unconfirmed":
            self._count(event, "unconfirmed", "unconfirmed_clicked" if event.clicks else "")
        elif event.settled_by == "void":
            self._count(event, "void")

    def add_late(self, event: Event, clicks: int) -> None:
        """Adds late clicks on a settled event; ``clicks`` is their mask."""
        if is_compared(event):
            self._minute(event)[LATE] += clicks.bit_count()

    def _add_compared(self, event: Event) -> None:
        clicks, rewards = event.clicks.bit_count(), event.rewards
        gained, squares = (sum(rewards), page_squares(rewards)) if rewards else (clicks, clicks * clicks)
        outcome = (1, len(event.listed.items), clicks, int(clicks > 0), clicks * clicks, 0)
        finals = int(event.settled_by == "final")
        totals = self._minute(event)
        for k, value in enumerate((*outcome, *((gained, squares) if rewards else (0, 0)), finals)):
            totals[k] += value
        if event.visitor is not None:
            hour = event.created_at - event.created_at % HOUR
            key = (event.surface_id, hour, event.segment, event.arm, bucket_of(event.visitor))
            sums = self._visitors.setdefault(key, [0, 0, 0])
            for k, value in enumerate((1, gained, squares)):
                sums[k] += value

    def _count(self, event: Event, *names: str) -> None:
        totals = self._minute(event)
        for name in filter(None, names):
            totals[COUNTS.index(name)] += 1

    def _minute(self, event: Event) -> list[int]:
        key = (event.surface_id, event.created_at - event.created_at % MINUTE, event.segment, event.arm)
        return self._minutes.setdefault(key, [0] * len(COUNTS))

    def write(self, session: Session) -> None:
        """Adds the sums to the stored ones, in sorted order, so that two processes cannot deadlock."""
        _add(session, "minutes", ("surface_id", "minute", "segment", "arm"), COUNTS, self._minutes)
        keys = ("surface_id", "hour", "segment", "arm", "bucket")
        _add(session, "visitor_hours", keys, ("pages", "clicks", "squares"), self._visitors)


def _add(session: Session, table: str, keys: tuple[str, ...], sums: tuple[str, ...], totals: dict[Any, Any]) -> None:
    columns = (*keys, *sums)
    changes = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in sums)
    session.many(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}",
        [(*key, *added) for key, added in sorted(totals.items())],
    )


# Imports and counts


def import_events(session: Session, events: Sequence[Event]) -> int:
    """Inserts events that are settled by "import", unless they are stored or were deleted; returns how many.

    They get numbers in the order of the arguments, which are changed, and are in no totals. One log may be imported
    into several surfaces: an event id that belongs to another surface is replaced by one that is derived from it. A
    process without the lease may import too: the log of the surface stays locked until the transaction ends.
    """
    for event in events:
        if event.settled_by != "import" or event.settled_at is None:
            raise ValueError(f"event {event.id.hex()} is not settled by import: only such events can be imported")
    owners = _owners(session, events)
    for event in events:
        if owners.get(event.id, event.surface_id) != event.surface_id:
            event.id = imported_id(event.surface_id, event.id.hex())
    owners = _owners(session, events)
    sql = "SELECT id FROM learners WHERE NOT deleted AND id IN ?"
    learners = {id for (id,) in session.among(sql, {event.learner_id for event in events})}
    new: dict[int, dict[bytes, Event]] = {}
    for event in events:
        if event.id not in owners and event.learner_id in learners:
            new.setdefault(event.surface_id, {}).setdefault(event.id, event)
    for surface_id, of_surface in sorted(new.items()):
        _number(session, surface_id, list(of_surface.values()))
        _insert(session, of_surface.values())
        first = next(iter(of_surface.values())).number
        sql = "SELECT count(*) FROM events WHERE surface_id = ? AND number >= ?"
        if session.run(sql, (surface_id, first))[0][0] != len(of_surface):
            raise StoreError("another process has stored an event of the import meanwhile: import it again")
    return sum(map(len, new.values()))


def _owners(session: Session, events: Sequence[Event]) -> dict[bytes, int]:
    """Returns the surface of the stored events, and of tombstones, that have one of these ids."""
    return dict(session.among("SELECT id, surface_id FROM events WHERE id IN ?", {event.id for event in events}))


def feedback_counts(
    session: Session, surface_id: int, since: int, until: int, started: int
) -> dict[str, tuple[int, int]]:
    """Returns, for each arm, the events with ``since <= created_at < until``, and those settled by final feedback.

    Of every visitor, only the first event at or after ``started`` is counted: all of them have the same arm.
    Imported, deleted and uncounted events are left out.
    """
    counted = "{0}.surface_id = ? AND {0}.counted AND NOT {0}.deleted AND {0}.settled_by <> 'import'"
    rows = session.run(
        f"SELECT e.arm, count(*), sum(CASE WHEN e.settled_by = 'final' THEN 1 ELSE 0 END) FROM {EVENTS}"
        f" WHERE {counted.format('e')} AND e.created_at >= ? AND e.created_at < ? AND (e.visitor IS NULL OR NOT EXISTS"
        f" (SELECT 1 FROM events f WHERE {counted.format('f')} AND f.visitor = e.visitor AND f.created_at >= ?"
        " AND (f.created_at < e.created_at OR (f.created_at = e.created_at AND f.id < e.id)))) GROUP BY e.arm",
        (surface_id, since, until, surface_id, started),
    )
    return {arm: (int(events), int(answered)) for arm, events, answered in rows}
