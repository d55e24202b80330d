"""What a service writes down beside events, in tables: facts, keys, audit, history, policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .additions import HISTORY_COLUMNS, MINUTE
from .database import Database, Session
from .rows import Row

__all__ = ["POLICIES_KEPT", "NoteTables", "take_numbers", "write_entries"]

END = 1 << 62  # beyond every number taken
POLICIES_KEPT = 200  # of every segment; further back, fewer and fewer
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
SPARSE = ((HOUR, MINUTE), (30 * DAY, HOUR))  # up to which age one policy in how much time is kept; then, one a day


class NoteTables:
    """The part of a store that keeps small things."""

    database: Database

    def get(self, key: str) -> bytes | None:
        with self.database.reading() as session:
            rows = session.run("SELECT value FROM facts WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        """Write a fact, and say what is there afterwards; with ``expected``, only if that is what was there."""
        otherwise = "NOTHING" if only_if_absent else "UPDATE SET value = excluded.value"

        def work(session: Session) -> bytes:
            if expected is None:
                sql = f"INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO {otherwise}"
                session.many(sql, [(key, value)])
            else:
                session.many("UPDATE facts SET value = ? WHERE key = ? AND value = ?", [(value, key, expected)])
            rows = session.run("SELECT value FROM facts WHERE key = ?", (key,))
            return bytes(rows[0][0]) if rows else b""

        return self.database.write(work)

    def keys(self) -> list[dict[str, Any]]:
        with self.database.reading() as session:
            return [msgspec.msgpack.decode(body) for (body,) in session.run("SELECT body FROM api_keys ORDER BY id")]

    def save_key(self, key: dict[str, Any]) -> None:
        """Write an API key, or change the one with the same ``id``."""
        values = (key["id"], msgspec.msgpack.encode(key))
        sql = "INSERT INTO api_keys (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        self.database.write(lambda session: session.many(sql, [values]))

    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """The newest entries first, each with its ``id``; ``before`` continues below this id."""
        conditions, values = ["id < ?"], [END if before is None else min(before, END)]
        if surface_id is not None:
            conditions.append("surface_id = ?")
            values.append(surface_id)
        sql = f"SELECT id, body FROM audit WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
        with self.database.reading() as session:
            rows = session.run(sql, (*values, limit))
        return [{**msgspec.json.decode(body), "id": id} for id, body in rows]

    def write_audit(self, entries: Sequence[dict[str, Any]]) -> None:
        self.database.write(lambda session: write_entries(session, entries))

    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        """Per time bucket, segment and arm: events decided, and of those settled, what they showed and earned.

        Buckets are whole minutes, or ``step`` milliseconds if that is more; ``at`` is their beginning. ``clicked`` is
        the number of events with any click, ``squares`` the sum of squared clicks per event (for intervals).
        """
        step = max(MINUTE, step - step % MINUTE)
        sums = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in HISTORY_COLUMNS)
        with self.database.reading() as session:
            rows = session.run(
                f"SELECT minute - minute % ? AS bucket, segment, arm, {sums} FROM history"
                " WHERE surface_id = ? AND minute >= ? AND minute < ?"
                " GROUP BY bucket, segment, arm ORDER BY bucket, segment, arm",
                (step, surface_id, since - since % MINUTE, until),
            )
        return [dict(zip(("at", "segment", "arm", *HISTORY_COLUMNS), row, strict=True)) for row in rows]

    def save_policy(self, policy_id: str, surface_id: int, segment: str, at: int, body: bytes) -> None:
        """Keep a policy for the dashboard and for "why?"; not synced to disk, since it can be computed again."""

        def work(session: Session) -> None:
            sql = (
                "INSERT INTO policies (id, surface_id, segment, at, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
            )
            session.many(sql, [(policy_id, surface_id, segment, at, body)])
            _thin(session, surface_id, segment, at)

        self.database.write(work, durable=False)

    def policy(self, policy_id: str) -> bytes | None:
        with self.database.reading() as session:
            rows = session.run("SELECT body FROM policies WHERE id = ?", (policy_id,))
        return bytes(rows[0][0]) if rows else None

    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]:
        """Those saved at ``since`` or later, oldest first; evenly spread if there are more than ``limit``."""
        with self.database.reading() as session:
            where = "FROM policies WHERE surface_id = ? AND segment = ? AND at >= ?"
            found = session.run(f"SELECT at, id {where} ORDER BY at, id", (surface_id, segment, since))
            count = len(found)
            if count > limit:
                found = [found[count - 1 - k * count // limit] for k in reversed(range(limit))]
            bodies = (session.run("SELECT body FROM policies WHERE id = ?", (id,))[0][0] for _, id in found)
            return [(at, id, bytes(body)) for (at, id), body in zip(found, bodies, strict=True)]


def take_numbers(session: Session, name: str, count: int) -> int:
    """Count up, and hold others off until the transaction ends; the last of the numbers taken."""
    rows = session.run("UPDATE numbers SET value = value + ? WHERE name = ? RETURNING value", (count, name))
    return int(rows[0][0])


def write_entries(session: Session, entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        return
    first = take_numbers(session, "audit", len(entries)) - len(entries) + 1
    rows = [(first + k, entry.get("surface_id"), msgspec.json.encode(entry)) for k, entry in enumerate(entries)]
    session.many("INSERT INTO audit (id, surface_id, body) VALUES (?, ?, ?)", rows)


def _thin(session: Session, surface_id: int, segment: str, at: int) -> None:
    """Drop old policies, when the first one of a minute is saved."""
    where = "FROM policies WHERE surface_id = ? AND segment = ?"
    sql = f"SELECT count(*) {where} AND at >= ?"
    if session.run(sql, (surface_id, segment, at - at % MINUTE))[0][0] == 1:
        found = session.run(f"SELECT at, id {where} ORDER BY at, id", (surface_id, segment))
        session.many("DELETE FROM policies WHERE id = ?", [(id,) for id in _superfluous(found, at)])


def _superfluous(found: Sequence[Row], now: int) -> list[str]:
    """The ids of policies, oldest first, that are not the first of their minute, hour or day, by their age.

    >>> _superfluous([(k * 20 * MINUTE, f"p{k}") for k in range(210)], 209 * 20 * MINUTE)
    ['p1', 'p2', 'p4', 'p5', 'p7', 'p8']
    """
    seen: set[tuple[int, int]] = set()
    dropped = []
    for at, id in found[:-POLICIES_KEPT]:
        width = next((width for age, width in SPARSE if now - at <= age), DAY)
        bucket = (width, at // width)
        if bucket in seen:
            dropped.append(id)
        seen.add(bucket)
    return dropped
