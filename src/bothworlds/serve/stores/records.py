"""SQL on facts, sequences, keys, the audit log and policies, and on whole tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from .database import Row, Session

Entries = Sequence[dict[str, Any]]  # of the audit log

# In the order in which they can be filled: referenced tables first; facts last, because they mark a complete copy.
TABLES = (
    "numbers", "lease", "surfaces", "logs", "learners", "events", "snapshots", "policies", "minutes", "visitor_hours",
    "audit", "keys", "facts",
)  # fmt: skip
MAX_NUMBER = 1 << 62
POLICIES_KEPT = 1000  # newest policies of every learner

# Facts: small values of the service such as secrets; sequences


def read_fact(session: Session, key: str) -> bytes | None:
    """Returns the value of a fact, or None if it is absent."""
    rows = session.run("SELECT value FROM facts WHERE key = ?", (key,))
    return bytes(rows[0][0]) if rows else None


def write_fact(session: Session, key: str, value: bytes, *, only_if_absent: bool = False) -> bytes:
    """Writes a fact and returns the value stored afterwards; with ``only_if_absent`` an existing value is kept."""
    on_conflict = "NOTHING" if only_if_absent else "UPDATE SET value = excluded.value"
    session.run(f"INSERT INTO facts (key, value) VALUES (?, ?) ON CONFLICT (key) DO {on_conflict}", (key, value))
    return read_fact(session, key) or b""


def change_fact(session: Session, key: str, change: Callable[[bytes], bytes]) -> bytes:
    """Replaces the value of a fact that exists by what a function returns for it; changes follow one another."""
    value = change(bytes(session.run(f"SELECT value FROM facts WHERE key = ?{session.lock('UPDATE')}", (key,))[0][0]))
    session.run("UPDATE facts SET value = ? WHERE key = ?", (value, key))
    return value


def take_numbers(session: Session, name: str, count: int) -> int:
    """Increases a sequence by ``count`` and returns its new value; its row stays locked until the transaction ends."""
    rows = session.run("UPDATE numbers SET value = value + ? WHERE name = ? RETURNING value", (count, name))
    return int(rows[0][0])


# Keys and the audit log


def read_keys(session: Session) -> list[dict[str, Any]]:
    """Returns all API keys."""
    return [msgspec.msgpack.decode(body) for (body,) in session.run("SELECT body FROM keys ORDER BY id")]


def write_key(session: Session, key: dict[str, Any]) -> None:
    """Inserts an API key, or replaces the one with the same ``id``."""
    sql = "INSERT INTO keys (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
    session.run(sql, (key["id"], msgspec.msgpack.encode(key)))


def read_entries(
    session: Session, surface_id: int | None, limit: int, before: int | None = None
) -> list[dict[str, Any]]:
    """Returns audit entries, newest first, each with its ``id``; of all surfaces if ``surface_id`` is None.

    ``before`` continues a listing below this id.
    """
    chosen, values = ("", ()) if surface_id is None else (" AND surface_id = ?", (surface_id,))
    sql = f"SELECT id, body FROM audit WHERE id < ?{chosen} ORDER BY id DESC LIMIT ?"
    rows = session.run(sql, (MAX_NUMBER if before is None else min(before, MAX_NUMBER), *values, limit))
    return [{**msgspec.json.decode(body), "id": id} for id, body in rows]


def write_entries(session: Session, entries: Entries) -> None:
    """Appends audit entries; ``surface_id`` assigns an entry to a surface."""
    if entries:
        first = take_numbers(session, "audit", len(entries)) - len(entries) + 1
        rows = [(first + k, entry.get("surface_id"), msgspec.json.encode(entry)) for k, entry in enumerate(entries)]
        session.many("INSERT INTO audit (id, surface_id, body) VALUES (?, ?, ?)", rows)


# Policies: what was drawn from, for the dashboard


def write_policy(session: Session, policy_id: str, learner_id: int, at: int, body: bytes) -> None:
    """Stores a policy, and deletes all but the newest ``POLICIES_KEPT`` of its learner."""
    session.run(
        "INSERT INTO policies (id, learner_id, at, body) SELECT ?, id, ?, ? FROM learners WHERE id = ? AND NOT deleted"
        " ON CONFLICT (id) DO NOTHING",
        (policy_id, at, body, learner_id),
    )
    newest = "SELECT at FROM policies WHERE learner_id = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
    sql = f"DELETE FROM policies WHERE learner_id = ? AND at <= ({newest})"
    session.run(sql, (learner_id, learner_id, POLICIES_KEPT))


def read_policies(
    session: Session, surface_id: int, number: int, since: int, limit: int
) -> list[tuple[int, str, bytes]]:
    """Returns (at, id, body) of policies since ``since``, oldest first; evenly sampled if more than ``limit``.

    They are those of the learner with this number.
    """
    sql = (
        "SELECT p.at, p.id FROM policies p JOIN learners l ON l.id = p.learner_id AND NOT l.deleted"
        " WHERE l.surface_id = ? AND l.number = ? AND p.at >= ? ORDER BY p.at, p.id"
    )
    found = session.run(sql, (surface_id, number, since))
    count = len(found)
    if count > limit:
        found = [found[count - 1 - k * count // limit] for k in reversed(range(limit))]
    bodies: dict[str, bytes] = dict(
        session.among("SELECT id, body FROM policies WHERE id IN ?", [id for _, id in found])
    )
    return [(at, id, bytes(bodies[id])) for at, id in found]


# Whole tables


def is_empty(session: Session) -> bool:
    """Returns whether the store has no surfaces, keys or audit entries."""
    return not any(session.run(f"SELECT 1 FROM {name} LIMIT 1") for name in ("surfaces", "keys", "audit"))


def count_rows(session: Session, tables: Sequence[str] = TABLES) -> int:
    """Returns the number of rows in these tables."""
    return sum(session.run(f"SELECT count(*) FROM {name}")[0][0] for name in tables)


def read_columns(session: Session, table: str) -> list[str]:
    """Returns the names of the columns of a table."""
    return session.columns(table)


def stream_rows(session: Session, table: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a table."""
    yield from session.stream(f"SELECT {', '.join(columns)} FROM {table}")


def fill(session: Session, table: str, columns: Sequence[str], rows: Sequence[Row], *, replace: bool = False) -> None:
    """Inserts rows unchanged; with ``replace``, deletes the existing rows first."""
    if replace:
        session.run(f"DELETE FROM {table}")
    values = ", ".join("?" * len(columns))
    session.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)
