"""Surfaces, their segments and counters in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from ..model import RESET, Adjustment, Segment, Surface
from .additions import Additions
from .base import VersionConflict
from .database import Database, Session, add_history
from .rows import ADJUSTMENT_COLUMNS, Row, adjustment_of, row_of_adjustment
from .sql_notes import take_numbers, write_entries

__all__ = ["SurfaceTables", "add_adjustments", "add_counters", "read_segments", "read_surfaces"]

_surface = msgspec.json.Decoder(Surface).decode


class SurfaceTables:
    """The part of a store that keeps surfaces and what has been learned about them."""

    database: Database

    def surfaces(self) -> list[Surface]:
        with self.database.reading() as session:
            return read_surfaces(session)

    def save_surface(
        self, surface: Surface, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]
    ) -> Surface:
        """Insert or change a surface; what comes with a new one (id 0) is given its id."""

        def work(session: Session) -> Surface:
            saved = _changed(session, surface) if surface.id else _inserted(session, surface)
            adjusted = [_of_surface(adjustment, saved.id) for adjustment in adjustments]
            if not add_adjustments(session, adjusted):
                take_numbers(session, "revision", 1)
            write_entries(session, [{**entry, "surface_id": entry.get("surface_id") or saved.id} for entry in audit])
            return saved

        return self.database.write(work)

    def revision(self) -> int:
        with self.database.reading() as session:
            return int(session.run("SELECT value FROM numbers WHERE name = 'revision'")[0][0])

    def segments(self, surface_id: int, since: int = -1) -> list[Segment]:
        with self.database.reading() as session:
            return read_segments(session, surface_id, since)

    def adjust(self, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]) -> None:
        def work(session: Session) -> None:
            add_adjustments(session, adjustments)
            write_entries(session, audit)

        self.database.write(work)

    def adjust_by(
        self,
        surface_id: int,
        make: Callable[[list[Segment]], Sequence[Adjustment]],
        audit: Sequence[dict[str, Any]],
    ) -> None:
        """Adjust by what is made of the counters as they are, with nobody counting in between."""

        def work(session: Session) -> None:
            if self.database.shared:  # locked in the order in which all others change them
                session.run(
                    "SELECT 1 FROM counters WHERE surface_id = ? ORDER BY segment, item, slot FOR UPDATE", (surface_id,)
                )
            made = make(read_segments(session, surface_id))
            add_adjustments(session, _in_time(session, surface_id, made))
            write_entries(session, audit)

        self.database.write(work)

    def segment_names(self, surface_id: int) -> set[str]:
        with self.database.reading() as session:
            return _names(session, surface_id)

    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool:
        """Give a segment a place unless all are taken; True if it has one."""

        def work(session: Session) -> bool:
            revision = take_numbers(session, "revision", 1)  # first, so that processes admit one after the other
            if (decided := _admitted(_names(session, surface_id), segment, limit)) is not None:
                return decided
            row = (surface_id, segment, revision)
            session.many("INSERT INTO segments (surface_id, segment, rounds, revision) VALUES (?, ?, 0, ?)", [row])
            return True

        # A flood of names that find no place must not hold up writers.
        decided = _admitted(self.segment_names(surface_id), segment, limit)
        return self.database.write(work, durable=False) if decided is None else decided

    def delete_segments(
        self,
        surface_id: int,
        revisions: Mapping[str, int | None],
        make: Callable[[list[Segment]], tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]],
    ) -> set[str]:
        """Adjust by what ``make`` returns for the segments, and drop the rows that are zero then."""

        def work(session: Session) -> set[str]:
            found = []
            for name, revision in sorted(revisions.items()):
                if self.database.shared:
                    _lock_counters(session, surface_id, name)
                found += [
                    one for one in read_segments(session, surface_id, -1, name) if revision in (None, one.revision)
                ]
            if not found:
                return set()
            adjustments, audit = make(found)
            if not add_adjustments(session, _in_time(session, surface_id, adjustments)):
                take_numbers(session, "revision", 1)
            for segment in found:
                _drop_zeros(session, surface_id, segment.name)
            write_entries(session, audit)
            return {segment.name for segment in found}

        return self.database.write(work)

    def adjustments(self) -> Iterator[Adjustment]:
        with self.database.reading() as session:
            rows = session.stream(f"SELECT {ADJUSTMENT_COLUMNS} FROM adjustments ORDER BY id")
            yield from map(adjustment_of, rows)


def _names(session: Session, surface_id: int) -> set[str]:
    return {name for (name,) in session.run("SELECT segment FROM segments WHERE surface_id = ?", (surface_id,))}


def _admitted(names: Set[str], segment: str, limit: int) -> bool | None:
    """Whether a segment has a place among these; None if it can be given one.

    >>> _admitted({"", "a"}, "a", 2), _admitted({"", "a"}, "b", 2), _admitted({"a"}, "b", 2), _admitted({"a"}, "b", 3)
    (True, False, False, None)
    """
    if segment == "" or segment in names:
        return True
    return None if len(names | {""}) < limit else False


def _lock_counters(session: Session, surface_id: int, segment: str) -> None:
    """In the order in which all others change them."""
    session.run(
        "SELECT 1 FROM counters WHERE surface_id = ? AND segment = ? ORDER BY item, slot FOR UPDATE",
        (surface_id, segment),
    )


def _drop_zeros(session: Session, surface_id: int, segment: str) -> None:
    """Remove what a segment has in tables; not what another process has counted in it meanwhile."""
    where = "WHERE surface_id = ? AND segment = ?"
    values = (surface_id, segment)
    session.run(f"DELETE FROM policies {where}", values)
    session.run(f"DELETE FROM counters {where} AND loss = 0 AND shown = 0 AND clicked = 0", values)
    session.run(
        f"DELETE FROM segments {where} AND rounds = 0 AND NOT EXISTS (SELECT 1 FROM counters {where})", values * 2
    )


def read_surfaces(session: Session) -> list[Surface]:
    """All surfaces, in the order in which they were made."""
    return [_surface(body) for (body,) in session.run("SELECT body FROM surfaces ORDER BY id")]


def read_segments(session: Session, surface_id: int, since: int = -1, only: str | None = None) -> list[Segment]:
    """The segments of a surface whose counters have changed after revision ``since``, or ``only`` one of them."""
    values: Row = (surface_id, since) if only is None else (surface_id, since, only)
    chosen = "" if only is None else " AND s.segment = ?"
    found = session.run(
        "SELECT s.segment, s.rounds, s.revision FROM segments s"
        f" WHERE s.surface_id = ? AND s.revision > ?{chosen} ORDER BY s.segment",
        values,
    )
    segments = {
        name: Segment(surface_id=surface_id, name=name, rounds=rounds, revision=revision, loss={}, shown={}, clicked={})
        for name, rounds, revision in found
    }
    cells = session.run(
        "SELECT c.segment, c.item, c.slot, c.loss, c.shown, c.clicked FROM counters c JOIN segments s"
        " ON s.surface_id = c.surface_id AND s.segment = c.segment WHERE s.surface_id = ? AND s.revision > ?"
        f"{chosen}",
        values,
    )
    for name, item, slot, loss, shown, clicked in cells:
        if segment := segments.get(name):  # one that was made between two statements has been missed
            segment.loss[item, slot], segment.shown[item, slot], segment.clicked[item, slot] = loss, shown, clicked
    return list(segments.values())


def add_counters(session: Session, additions: Additions) -> None:
    """Add to cells and segments, in sorted order; the revision comes last, since all processes wait for its row."""
    cells = sorted(additions.cells().items())
    session.many(
        "INSERT INTO counters (surface_id, segment, item, slot, loss, shown, clicked) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (surface_id, segment, item, slot) DO UPDATE SET loss = counters.loss + excluded.loss,"
        " shown = counters.shown + excluded.shown, clicked = counters.clicked + excluded.clicked",
        [(*where, *totals) for where, totals in cells],
    )
    add_history(session, additions)
    if not additions.rounds:
        return
    revision = take_numbers(session, "revision", 1)
    session.many(
        "INSERT INTO segments (surface_id, segment, rounds, revision) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (surface_id, segment) DO UPDATE"
        " SET rounds = segments.rounds + excluded.rounds, revision = excluded.revision",
        [(*where, rounds, revision) for where, rounds in sorted(additions.rounds.items())],
    )


def _inserted(session: Session, surface: Surface) -> Surface:
    number = take_numbers(session, "surface", 1)
    if session.run("SELECT 1 FROM surfaces WHERE name = ?", (surface.name,)):
        raise VersionConflict(f"surface {surface.name!r} has been created by somebody else: read it again")
    saved = msgspec.structs.replace(surface, id=number)
    values = (saved.id, saved.name, saved.version, msgspec.json.encode(saved))
    session.many("INSERT INTO surfaces (id, name, version, body) VALUES (?, ?, ?, ?)", [values])
    return saved


def _changed(session: Session, surface: Surface) -> Surface:
    body = msgspec.json.encode(surface)
    done = session.run(
        "UPDATE surfaces SET name = ?, version = ?, body = ? WHERE id = ? AND version = ? RETURNING id",
        (surface.name, surface.version, body, surface.id, surface.version - 1),
    )
    if not done:
        raise VersionConflict(f"surface {surface.name!r} has been changed by somebody else: read it again")
    return surface


def add_adjustments(session: Session, adjustments: Sequence[Adjustment]) -> bool:
    """Add and write down adjustments; whether this has changed the revision."""
    additions = Additions()
    for adjustment in adjustments:
        additions.add(adjustment.increments)
    add_counters(session, additions)
    if adjustments:
        last = take_numbers(session, "adjustment", len(adjustments))
        rows = [(last - k, *row_of_adjustment(a)) for k, a in enumerate(reversed(adjustments))]
        session.many(f"INSERT INTO adjustments (id, {ADJUSTMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return bool(additions.rounds)


def _in_time(session: Session, surface_id: int, adjustments: Sequence[Adjustment]) -> list[Adjustment]:
    """Resets not before what they take away had settled: clocks are set back, and those of two machines differ."""
    resets = [one for one in adjustments if one.reason == RESET]
    if not resets:
        return list(adjustments)
    settled = session.run(
        "SELECT segment, max(settled_at) FROM events"
        " WHERE surface_id = ? AND settled_at > ? AND settled_by <> 'import' GROUP BY segment",
        (surface_id, min(one.at for one in resets)),
    )
    latest: dict[str, int] = {row[0]: row[1] for row in settled}

    def dated(reset: Adjustment) -> Adjustment:
        return msgspec.structs.replace(reset, at=max(reset.at, latest.get(reset.increments.segment, reset.at)))

    return [dated(one) if one.reason == RESET else one for one in adjustments]


def _of_surface(adjustment: Adjustment, surface_id: int) -> Adjustment:
    increments = msgspec.structs.replace(adjustment.increments, surface_id=surface_id)
    return msgspec.structs.replace(adjustment, increments=increments)
