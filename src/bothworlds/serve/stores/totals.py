"""Totals of settled events by minutes and by buckets of visitors, so that reports do not read events."""

from __future__ import annotations

from typing import Any

from ..events import Event
from ..model import bucket_of
from ..outcomes import Endings, is_compared, page_squares
from .database import Session

MINUTE, HOUR = 60_000, 3_600_000
HISTORY = ("settled", "shows", "clicks", "clicked", "squares", "late", "rewards", "reward_squares")
COUNTS = (*HISTORY, "finals", "unconfirmed", "unconfirmed_clicked", "void", "uncounted")  # columns of "minutes"
LATE = COUNTS.index("late")

VisitorSums = dict[str, dict[int, tuple[int, int, int]]]  # arm -> bucket -> pages, clicks, squares of clicks per page


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


def read_history(session: Session, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
    """Returns totals per time bucket (``at``, by creation time), segment and arm, of events that are compared.

    Columns: ``settled`` events, ``shows``, ``clicks``, ``clicked`` (events with any click), ``squares`` (sum of squared
    clicks per event), ``late`` (clicks after settling, which no other column has). ``rewards`` and ``reward_squares``
    are the sums of rewards, and of squared rewards per event, in units of 2^-20. Buckets have ``step`` milliseconds,
    rounded down to whole minutes but at least one.
    """
    step = max(MINUTE, step - step % MINUTE)
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in HISTORY)
    rows = session.run(
        f"SELECT minute - minute % ? AS bucket, segment, arm, {sums} FROM minutes"
        " WHERE surface_id = ? AND minute >= ? AND minute < ?"
        " GROUP BY bucket, segment, arm HAVING sum(settled) > 0 ORDER BY bucket, segment, arm",
        (step, surface_id, since - since % MINUTE, until),
    )
    return [dict(zip(("at", "segment", "arm", *HISTORY), row, strict=True)) for row in rows]


def read_endings(session: Session, surface_id: int, since: int, now: int) -> Endings:
    """Returns how settled pages of all arms have ended that were created from ``since`` to ``now``."""
    names = ("settled", "settled - finals", "unconfirmed", "unconfirmed_clicked", "void", "uncounted")
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT)" for name in names)
    sql = f"SELECT {sums} FROM minutes WHERE surface_id = ? AND minute >= ? AND minute <= ?"
    return Endings(*session.run(sql, (surface_id, since - since % MINUTE, now))[0])


def read_visitor_sums(session: Session, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
    """Returns totals of compared events with a visitor, of the hours that begin in a range of time.

    Of one segment, or of all of them if it is None. Arms and buckets without such events are left out.
    """
    chosen, values = ("", ()) if segment is None else (" AND segment = ?", (segment,))
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in ("pages", "clicks", "squares"))
    rows = session.run(
        f"SELECT arm, bucket, {sums} FROM visitor_hours WHERE surface_id = ? AND hour >= ? AND hour < ?{chosen}"
        " GROUP BY arm, bucket",
        (surface_id, since, until, *values),
    )
    found: VisitorSums = {}
    for arm, bucket, pages, clicks, squares in rows:
        found.setdefault(arm, {})[bucket] = (pages, clicks, squares)
    return found


def forget_visitor_sums(session: Session, surface_id: int, before: int) -> None:
    """Deletes the totals of hours that ended before this time; reports on later hours do not change."""
    sql = "DELETE FROM visitor_hours WHERE surface_id = ? AND hour < ?"
    session.run(sql, (surface_id, before - before % HOUR))
