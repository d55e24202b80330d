"""Totals of settled events by minutes and by buckets of visitors, so that reports do not read events."""

from __future__ import annotations

from typing import Any

from ..outcomes import Endings
from .database import Session
from .events import HISTORY, HOUR, MINUTE

VisitorSums = dict[str, dict[int, tuple[int, int, int]]]  # arm -> bucket -> pages, clicks, squares of clicks per page


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
