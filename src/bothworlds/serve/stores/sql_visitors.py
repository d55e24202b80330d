"""SQL statements on the totals by buckets of visitors."""

from __future__ import annotations

from .base import VisitorSums
from .batch_totals import BatchTotals
from .database import Session
from .rows import Row

__all__ = ["FIRST_OF_VISITOR", "add_visitor_sums", "delete_visitor_sums", "read_visitor_sums"]

# The condition that an event ``e`` has no visitor, or is her first one at or after a time.
FIRST_OF_VISITOR = (
    "(e.visitor IS NULL OR NOT EXISTS (SELECT 1 FROM events f WHERE f.visitor = e.visitor"
    " AND f.surface_id = e.surface_id AND f.settled_by <> 'import' AND f.created_at >= ?"
    " AND (f.created_at < e.created_at OR (f.created_at = e.created_at AND f.id < e.id))))"
)


def add_visitor_sums(session: Session, totals: BatchTotals) -> None:
    """Adds the totals of a batch to the buckets of visitors, in sorted order, so that two processes cannot deadlock."""
    session.many(
        "INSERT INTO visitor_sums (surface_id, hour, segment, arm, bucket, pages, clicks, squares)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (surface_id, hour, segment, arm, bucket) DO UPDATE SET"
        " pages = visitor_sums.pages + excluded.pages, clicks = visitor_sums.clicks + excluded.clicks,"
        " squares = visitor_sums.squares + excluded.squares",
        [(*key, *sums) for key, sums in sorted(totals.visitors.items()) if any(sums)],
    )


def delete_visitor_sums(session: Session, surface_id: int, before: int) -> None:
    """Deletes the totals of hours that begin before this time."""
    session.run("DELETE FROM visitor_sums WHERE surface_id = ? AND hour < ?", (surface_id, before))


def read_visitor_sums(session: Session, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
    """Returns totals per arm and bucket, of the hours that begin in a range; of all segments if ``segment`` is None."""
    chosen, values = ("", ()) if segment is None else (" AND segment = ?", (segment,))
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in ("pages", "clicks", "squares"))
    rows: list[Row] = session.run(
        f"SELECT arm, bucket, {sums} FROM visitor_sums WHERE surface_id = ? AND hour >= ? AND hour < ?{chosen}"
        " GROUP BY arm, bucket",
        (surface_id, since, until, *values),
    )
    found: VisitorSums = {}
    for arm, bucket, pages, clicks, squares in rows:
        found.setdefault(arm, {})[bucket] = (pages, clicks, squares)
    return found
