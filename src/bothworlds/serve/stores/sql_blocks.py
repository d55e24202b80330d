"""SQL statements on blocks of time and on the numbers of segments.

A transaction that counts appends its sums as new rows, one per second and segment, under its own revision. Rows are
never updated. Several rows may have the same or nested ranges; a compaction replaces them by their sum. Everybody who
changes blocks takes a revision first, whose row is locked until the transaction ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model import BOUNDARIES, now_ms
from ..time_blocks import (
    TimeBlock,
    decode_cells,
    enclosing_range,
    encode_cells,
    folded,
    largest_ranges,
    second_of,
)
from .base import BlockKey
from .batch_totals import BatchTotals
from .database import Session
from .sql_metadata import take_numbers

__all__ = [
    "Compaction",
    "OutdatedCompaction",
    "add_blocks",
    "apply_compaction",
    "insert_blocks",
    "plan_compaction",
    "read_blocks",
    "read_boundaries",
    "read_numbers",
    "remove_blocks",
    "write_number",
]

MANY_SECONDS = 32  # a batch that covers more seconds, such as an import, is folded before it is written
_SEGMENT = "WHERE surface_id = ? AND segment = ?"


def add_blocks(session: Session, totals: BatchTotals, revision: int) -> None:
    """Appends the blocks of a batch, of which this is the revision."""
    for (surface_id, segment), blocks in totals.blocks().items():
        if len(blocks) > MANY_SECONDS:
            now = now_ms() if totals.now is None else totals.now
            blocks = folded(blocks, second_of(now), read_boundaries(session, surface_id, segment))
        insert_blocks(session, surface_id, segment, blocks, revision)


def insert_blocks(session: Session, surface_id: int, segment: str, blocks: Sequence[TimeBlock], revision: int) -> None:
    """Inserts blocks with different ranges."""
    session.many(
        "INSERT INTO blocks (surface_id, segment, start, until, revision, rounds, cells, spread, difference, variance)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                surface_id,
                segment,
                block.start,
                block.until,
                revision,
                block.rounds,
                encode_cells(block.cells),
                *block.mixture,
            )
            for block in blocks
        ],
    )


def read_blocks(
    session: Session, surface_id: int, segment: str, known: Mapping[BlockKey, TimeBlock]
) -> dict[BlockKey, TimeBlock]:
    """Returns all blocks of a segment by key; those in ``known`` are not read again."""
    # Revisions are committed in their order, so that rows which are not known have a greater one.
    since = max((revision for _, _, revision in known), default=-1)
    new = {
        (start, until, revision): TimeBlock(start, until, rounds, decode_cells(cells), (spread, difference, variance))
        for start, until, revision, rounds, cells, spread, difference, variance in session.run(
            "SELECT start, until, revision, rounds, cells, spread, difference, variance"
            f" FROM blocks {_SEGMENT} AND revision > ?",
            (surface_id, segment, since),
        )
    }
    if not known:
        return new
    keys = session.run(f"SELECT start, until, revision FROM blocks {_SEGMENT}", (surface_id, segment))
    return {key: new.get(key) or known[key] for key in map(_key, keys)}


def _key(row: Sequence[int]) -> BlockKey:
    return row[0], row[1], row[2]


def remove_blocks(session: Session, surface_id: int, segment: str) -> list[TimeBlock]:
    """Deletes all blocks of a segment and returns them; the revision must have been taken."""
    columns = "start, until, rounds, cells, spread, difference, variance"
    rows = session.run(f"DELETE FROM blocks {_SEGMENT} RETURNING {columns}", (surface_id, segment))
    return [
        TimeBlock(start, until, rounds, decode_cells(cells), (spread, difference, variance))
        for start, until, rounds, cells, spread, difference, variance in rows
    ]


def read_boundaries(session: Session, surface_id: int, segment: str) -> tuple[int, ...]:
    """Returns the seconds at which blocks are not merged, in order: the cut of the store, then those of the segment."""
    cut = int(session.run("SELECT value FROM numbers WHERE name = 'cut'")[0][0])
    numbers = read_numbers(session, surface_id, segment)
    return (cut, *sorted({numbers[name] for name in BOUNDARIES if numbers.get(name, 0) > cut}))


class Compaction(NamedTuple):
    """Rows of a segment, and the blocks that are to replace those inside ``ranges``."""

    boundaries: tuple[int, ...]
    revision: int  # the greatest of the rows
    ranges: list[tuple[int, int]]
    n_rows: int  # inside the ranges
    blocks: list[TimeBlock]


def plan_compaction(session: Session, surface_id: int, segment: str, now: int, least: int) -> Compaction | None:
    """Returns how blocks can be merged as far as their age allows at the second ``now``.

    When it has been applied, there is one row for each range, and ranges depend on the events and on the time alone.
    Returns None if fewer than ``least`` rows would be saved, or nothing would change.
    """
    boundaries = read_boundaries(session, surface_id, segment)
    rows = session.run(f"SELECT start, until FROM blocks {_SEGMENT}", (surface_id, segment))
    ranges = largest_ranges(enclosing_range(start, until, now, boundaries) for start, until in rows)
    if len(rows) - len(ranges) < least or sorted(map(tuple, rows)) == ranges:
        return None
    stored = read_blocks(session, surface_id, segment, {})
    made = folded(stored.values(), now, boundaries)
    starts = [block.start for block in made]
    inside = Counter(bisect_right(starts, start) - 1 for start, _, _ in stored)
    known = {(start, until) for start, until, _ in stored}
    changed = [k for k, one in enumerate(made) if inside[k] > 1 or (one.start, one.until) not in known]
    return Compaction(
        boundaries,
        max((revision for _, _, revision in stored), default=-1),
        [(made[k].start, made[k].until) for k in changed],
        sum(inside[k] for k in changed),
        [made[k] for k in changed],
    )


def apply_compaction(session: Session, surface_id: int, segment: str, planned: Compaction) -> None:
    """Replaces rows as planned; rows that were added since stay as they are.

    Raises OutdatedCompaction if planned rows have been removed, or boundaries have been added.
    """
    revision = take_numbers(session, "revision", 1)  # from here on, no other process changes blocks
    deleted = 0
    for one in planned.ranges:
        deleted += len(
            session.run(
                f"DELETE FROM blocks {_SEGMENT} AND start >= ? AND until <= ? AND revision <= ? RETURNING revision",
                (surface_id, segment, *one, planned.revision),
            )
        )
    if deleted != planned.n_rows or read_boundaries(session, surface_id, segment) != planned.boundaries:
        raise OutdatedCompaction
    insert_blocks(session, surface_id, segment, planned.blocks, revision)


class OutdatedCompaction(Exception):
    """The blocks have changed since a compaction was planned."""


def read_numbers(session: Session, surface_id: int, segment: str) -> dict[str, int]:
    """Returns the numbers of a segment by name."""
    return dict(session.run(f"SELECT name, value FROM segment_numbers {_SEGMENT}", (surface_id, segment)))  # type: ignore[arg-type]


def write_number(session: Session, surface_id: int, segment: str, name: str, value: int, expected: int | None) -> bool:
    """Writes a number of a segment if the stored one is as expected; the revision must have been taken.

    A boundary is refused if a block lies across it.
    """
    if read_numbers(session, surface_id, segment).get(name) != expected:
        return False
    if name in BOUNDARIES:
        across = f"SELECT 1 FROM blocks {_SEGMENT} AND start < ? AND until > ? LIMIT 1"
        if session.run(across, (surface_id, segment, value, value)):
            return False
    session.many(
        "INSERT INTO segment_numbers (surface_id, segment, name, value) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (surface_id, segment, name) DO UPDATE SET value = excluded.value",
        [(surface_id, segment, name, value)],
    )
    return True
