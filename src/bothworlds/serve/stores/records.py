"""SQL statements on sequences, the audit log, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..model import split_counter_key
from .database import Row, Session

POLICIES_KEPT = 200  # newest policies of every learner that are never thinned
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
THINNING = ((HOUR, MINUTE), (30 * DAY, HOUR))  # (maximum age, one policy per); older policies: one per day


def take_numbers(session: Session, name: str, count: int) -> int:
    """Increases a sequence by ``count`` and returns its new value; its row stays locked until the transaction ends."""
    rows = session.run("UPDATE numbers SET value = value + ? WHERE name = ? RETURNING value", (count, name))
    return int(rows[0][0])


def write_entries(session: Session, entries: Sequence[dict[str, Any]]) -> None:
    """Appends audit entries."""
    if entries:
        first = take_numbers(session, "audit", len(entries)) - len(entries) + 1
        rows = [(first + k, entry.get("surface_id"), msgspec.json.encode(entry)) for k, entry in enumerate(entries)]
        session.many("INSERT INTO audit (id, surface_id, body) VALUES (?, ?, ?)", rows)


def write_policy(session: Session, row: Row) -> None:
    """Inserts a policy (id, learner_id, at, body) and thins the old ones of its learner."""
    id, learner_id, at, body = row
    session.run(
        "INSERT INTO policies (id, learner_id, at, body) SELECT ?, id, ?, ? FROM learners WHERE id = ? AND NOT deleted"
        " ON CONFLICT (id) DO NOTHING",
        (id, at, body, learner_id),
    )
    if (
        session.run("SELECT count(*) FROM policies WHERE learner_id = ? AND at >= ?", (learner_id, at - at % MINUTE))[
            0
        ][0]
        == 1
    ):
        found = session.run("SELECT at, id FROM policies WHERE learner_id = ? ORDER BY at, id", (learner_id,))
        session.many("DELETE FROM policies WHERE id = ?", [(id,) for id in _superfluous(found, at)])


def read_policies(
    session: Session, surface_id: int, segment: str, since: int, limit: int
) -> list[tuple[int, str, bytes]]:
    """Returns (at, id, body) of the policies of a learner; see ``Store.policies``."""
    name, number = split_counter_key(segment)
    sql = (
        "SELECT p.at, p.id FROM policies p JOIN learners l ON l.id = p.learner_id AND NOT l.deleted"
        " WHERE l.surface_id = ? AND l.segment = ? AND l.number = ? AND p.at >= ? ORDER BY p.at, p.id"
    )
    found = session.run(sql, (surface_id, name, number, since))
    count = len(found)
    if count > limit:
        found = [found[count - 1 - k * count // limit] for k in reversed(range(limit))]
    bodies: dict[str, bytes] = dict(
        session.among("SELECT id, body FROM policies WHERE id IN ?", [id for _, id in found])
    )
    return [(at, id, bytes(bodies[id])) for at, id in found]


def _superfluous(found: Sequence[Row], now: int) -> list[str]:
    """Returns the ids of policies that are not the first of their minute, hour or day, depending on their age.

    >>> _superfluous([(k * 20 * MINUTE, f"p{k}") for k in range(210)], 209 * 20 * MINUTE)
    ['p1', 'p2', 'p4', 'p5', 'p7', 'p8']
    """
    seen: set[tuple[int, int]] = set()
    dropped = []
    for at, id in found[:-POLICIES_KEPT]:
        width = next((width for age, width in THINNING if now - at <= age), DAY)
        bucket = (width, at // width)
        if bucket in seen:
            dropped.append(id)
        seen.add(bucket)
    return dropped
