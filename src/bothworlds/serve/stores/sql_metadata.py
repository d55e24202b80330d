"""SQL statements on facts, API keys, the audit log, history and stored policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .batch_totals import HISTORY_COLUMNS, MINUTE, BatchTotals
from .database import Session
from .rows import Row

__all__ = [
    "POLICIES_KEPT",
    "add_history",
    "read_entries",
    "read_fact",
    "read_history",
    "read_keys",
    "read_policies",
    "read_policy",
    "take_numbers",
    "write_entries",
    "write_fact",
    "write_key",
    "write_policy",
]

MAX_ID = 1 << 62  # greater than every id
POLICIES_KEPT = 200  # newest policies of every segment that are never thinned
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
THINNING = ((HOUR, MINUTE), (30 * DAY, HOUR))  # (maximum age, one policy per); older policies: one per day


def read_fact(session: Session, key: str) -> bytes | None:
    """Returns the value of a fact, or None."""
    rows = session.run("SELECT value FROM facts WHERE key = ?", (key,))
    return bytes(rows[0][0]) if rows else None


def write_fact(session: Session, key: str, value: bytes, only_if_absent: bool, expected: bytes | None) -> None:
    """Writes a fact; with ``expected``, only if that is the stored value."""
    if expected is None:
        on_conflict = "NOTHING" if only_if_absent else "UPDATE SET value = excluded.value"
        sql = f"INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO {on_conflict}"
        session.many(sql, [(key, value)])
    else:
        session.many("UPDATE facts SET value = ? WHERE key = ? AND value = ?", [(value, key, expected)])


def read_keys(session: Session) -> list[dict[str, Any]]:
    """Returns all API keys by id."""
    return [msgspec.msgpack.decode(body) for (body,) in session.run("SELECT body FROM api_keys ORDER BY id")]


def write_key(session: Session, key: dict[str, Any]) -> None:
    """Inserts an API key, or replaces the one with the same ``id``."""
    sql = "INSERT INTO api_keys (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
    session.many(sql, [(key["id"], msgspec.msgpack.encode(key))])


def read_entries(session: Session, surface_id: int | None, limit: int, before: int | None) -> list[dict[str, Any]]:
    """Returns audit entries with an id below ``before``, newest first."""
    conditions, values = ["id < ?"], [MAX_ID if before is None else min(before, MAX_ID)]
    if surface_id is not None:
        conditions.append("surface_id = ?")
        values.append(surface_id)
    sql = f"SELECT id, body FROM audit WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
    return [{**msgspec.json.decode(body), "id": id} for id, body in session.run(sql, (*values, limit))]


def read_history(session: Session, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
    """Returns totals per time bucket of ``step`` milliseconds (whole minutes), segment and arm."""
    step = max(MINUTE, step - step % MINUTE)
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in HISTORY_COLUMNS)
    rows = session.run(
        f"SELECT minute - minute % ? AS bucket, segment, arm, {sums} FROM history"
        " WHERE surface_id = ? AND minute >= ? AND minute < ?"
        " GROUP BY bucket, segment, arm ORDER BY bucket, segment, arm",
        (step, surface_id, since - since % MINUTE, until),
    )
    return [dict(zip(("at", "segment", "arm", *HISTORY_COLUMNS), row, strict=True)) for row in rows]


def add_history(session: Session, totals: BatchTotals) -> None:
    """Adds to the buckets of minutes, in sorted order, so that two processes cannot deadlock."""
    sums = ", ".join(f"{name} = history.{name} + excluded.{name}" for name in HISTORY_COLUMNS)
    rows = [(s, segment, arm, minute, *sums) for (s, minute, segment, arm), sums in sorted(totals.history.items())]
    session.many(
        f"INSERT INTO history (surface_id, segment, arm, minute, {', '.join(HISTORY_COLUMNS)})"
        f" VALUES (?, ?, ?, ?{', ?' * len(HISTORY_COLUMNS)})"
        f" ON CONFLICT (surface_id, minute, segment, arm) DO UPDATE SET {sums}",
        rows,
    )


def write_policy(session: Session, row: Row) -> None:
    """Inserts a policy (id, surface_id, segment, at, body) and thins the old ones of its segment."""
    sql = "INSERT INTO policies (id, surface_id, segment, at, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    session.many(sql, [row])
    _, surface_id, segment, at, _ = row
    _thin_policies(session, surface_id, segment, at)


def read_policy(session: Session, policy_id: str) -> bytes | None:
    """Returns the body of a policy, or None."""
    rows = session.run("SELECT body FROM policies WHERE id = ?", (policy_id,))
    return bytes(rows[0][0]) if rows else None


def read_policies(
    session: Session, surface_id: int, segment: str, since: int, limit: int
) -> list[tuple[int, str, bytes]]:
    """Returns (at, id, body) of policies saved at ``since`` or later; evenly sampled if more than ``limit``."""
    where = "FROM policies WHERE surface_id = ? AND segment = ? AND at >= ?"
    found = session.run(f"SELECT at, id {where} ORDER BY at, id", (surface_id, segment, since))
    count = len(found)
    if count > limit:
        found = [found[count - 1 - k * count // limit] for k in reversed(range(limit))]
    bodies = (session.run("SELECT body FROM policies WHERE id = ?", (id,))[0][0] for _, id in found)
    return [(at, id, bytes(body)) for (at, id), body in zip(found, bodies, strict=True)]


def take_numbers(session: Session, name: str, count: int) -> int:
    """Increases a sequence by ``count`` and returns its new value; its row stays locked until the transaction ends."""
    rows = session.run("UPDATE numbers SET value = value + ? WHERE name = ? RETURNING value", (count, name))
    return int(rows[0][0])


def write_entries(session: Session, entries: Sequence[dict[str, Any]]) -> None:
    """Appends audit entries."""
    if not entries:
        return
    first = take_numbers(session, "audit", len(entries)) - len(entries) + 1
    rows = [(first + k, entry.get("surface_id"), msgspec.json.encode(entry)) for k, entry in enumerate(entries)]
    session.many("INSERT INTO audit (id, surface_id, body) VALUES (?, ?, ?)", rows)


def _thin_policies(session: Session, surface_id: int, segment: str, at: int) -> None:
    """Deletes superfluous policies; runs only for the first policy saved in a minute."""
    where = "FROM policies WHERE surface_id = ? AND segment = ?"
    sql = f"SELECT count(*) {where} AND at >= ?"
    if session.run(sql, (surface_id, segment, at - at % MINUTE))[0][0] == 1:
        found = session.run(f"SELECT at, id {where} ORDER BY at, id", (surface_id, segment))
        session.many("DELETE FROM policies WHERE id = ?", [(id,) for id in _superfluous(found, at)])


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
