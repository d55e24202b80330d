"""Totals of settled events by minutes and by buckets of visitors, so that reports do not read events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .database import Session
from .events import HISTORY, MINUTE

VisitorSums = dict[str, dict[int, tuple[int, int, int]]]  # arm -> bucket -> pages, clicks, squares of clicks per page


def read_history(session: Session, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
    """Returns totals per time bucket, segment and arm; see ``Store.history``."""
    step = max(MINUTE, step - step % MINUTE)
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in HISTORY)
    rows = session.run(
        f"SELECT minute - minute % ? AS bucket, segment, arm, {sums} FROM minutes"
        " WHERE surface_id = ? AND minute >= ? AND minute < ?"
        " GROUP BY bucket, segment, arm HAVING sum(settled) > 0 ORDER BY bucket, segment, arm",
        (step, surface_id, since - since % MINUTE, until),
    )
    names = ("at", "segment", "arm", "events", *HISTORY)
    return [dict(zip(names, (*row[:3], row[3], *row[3:]), strict=True)) for row in rows]


def read_endings(session: Session, surface_id: int, since: int, now: int) -> tuple[int, int, int, int]:
    """Returns how pages of all arms have ended; see ``Store.endings``."""
    names = ("settled", "settled - finals", "unconfirmed", "unconfirmed_clicked")
    confirmed, by_deadline, unconfirmed, clicked = _sums(session, names, surface_id, since, now)
    return confirmed, by_deadline, unconfirmed, clicked


def read_discarded(session: Session, surface_id: int, since: int, now: int) -> tuple[int, int]:
    """Returns how many pages of all arms count for nothing; see ``Store.discarded``."""
    void, uncounted = _sums(session, ("void", "uncounted"), surface_id, since, now)
    return void, uncounted


def _sums(session: Session, names: Sequence[str], surface_id: int, since: int, now: int) -> Sequence[int]:
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT)" for name in names)
    sql = f"SELECT {sums} FROM minutes WHERE surface_id = ? AND minute >= ? AND minute <= ?"
    return session.run(sql, (surface_id, since - since % MINUTE, now))[0]


def read_visitor_sums(session: Session, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
    """Returns totals per arm and bucket, of the hours that begin in a range; of all segments if ``segment`` is None."""
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
