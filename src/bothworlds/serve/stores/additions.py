"""What a batch of reports adds up to, before anything is written: sums per cell, per segment and per minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from ..model import Eligibility, Event, Increments, Report, Status
from ..settlement import judged, spread

__all__ = ["HISTORY_COLUMNS", "MINUTE", "Additions", "Outcome", "applied"]

MINUTE = 60_000
HISTORY_COLUMNS = ("events", "settled", "shows", "clicks", "clicked", "squares", "late")

Totals = list[int]


class Additions:
    """Sums over a batch, so that each counter is written once however many events change it."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[int, str], int] = {}
        self._cells: dict[tuple[int, str, int, int], Totals] = {}
        # Losses by slot for each set of items that could be shown: spread over items once, not for every event.
        self._observed: dict[tuple[int, str, Eligibility], dict[int, int]] = {}
        self.history: dict[tuple[int, int, str, str], Totals] = {}

    def add(self, increments: Increments | None) -> None:
        if increments is None or not (increments.cells or increments.rounds):
            return
        where = (increments.surface_id, increments.segment)
        self.rounds[where] = self.rounds.get(where, 0) + increments.rounds
        for cell in increments.cells:
            totals = self._cells.setdefault((*where, cell.item, cell.slot), [0, 0, 0])
            totals[0] += cell.loss
            totals[1] += cell.shown
            totals[2] += cell.clicked
        if increments.observed:
            losses = self._observed.setdefault((*where, increments.eligibility), {})
            for slot, loss in increments.observed:
                losses[slot] = losses.get(slot, 0) + loss

    def cells(self) -> dict[tuple[int, str, int, int], Totals]:
        """Loss, shows and clicks to add to every cell."""
        cells = {where: list(totals) for where, totals in self._cells.items()}
        for (surface_id, segment, eligibility), losses in self._observed.items():
            for slot, observed in losses.items():
                for item, _, loss in spread(eligibility, slot, observed):
                    cells.setdefault((surface_id, segment, item, slot), [0, 0, 0])[0] += loss
        return cells

    def arrived(self, event: Event) -> None:
        """Count an event that was not there before, in the minute in which it was decided."""
        self._totals(event)[0] += 1

    def turned(self, before: Event | None, after: Event) -> None:
        """Count what became of an event; a click that comes late replaces what was counted for its absence."""
        totals = self._totals(after)
        for k, value in enumerate(_outcome(after), start=1):
            totals[k] += value
        if before is not None and before.settled_at is not None:
            for k, value in enumerate(_outcome(before), start=1):
                totals[k] -= value

    def _totals(self, event: Event) -> Totals:
        minute = event.created_at - event.created_at % MINUTE
        key = (event.surface_id, minute, event.segment, event.arm)
        return self.history.setdefault(key, [0] * len(HISTORY_COLUMNS))


def _outcome(event: Event) -> tuple[int, ...]:
    clicks = event.clicks.bit_count()
    return 1, len(event.items), clicks, int(clicks > 0), clicks * clicks, event.late.bit_count()


class Outcome(NamedTuple):
    """What reports do: what to answer, which events are new, which have changed, and what is added."""

    statuses: list[Status]
    new: list[Event]
    changed: list[Event]
    additions: Additions


def applied(
    stored: Mapping[bytes, Event],
    reports: Sequence[Report],
    surface_ids: Set[int],
    resets: Mapping[tuple[int, str], int],
    now: int,
) -> Outcome:
    """Apply reports one after the other to events as stored, or as the token tells where none is stored.

    A report on a surface that is not there (a backup older than the token) is rejected, and does not harm the others.
    ``resets`` are the times of the last reset of each segment.
    """
    current = dict(stored)
    touched: dict[bytes, Event] = {}
    statuses: list[Status] = []
    additions = Additions()
    for report in reports:
        if report.event.surface_id not in surface_ids:
            statuses.append("rejected")
            continue
        before = current.get(report.event.id)
        reset_at = resets.get((before.surface_id, before.segment)) if before is not None else None
        event, increments, status = judged(before, report, now, reset_at)
        statuses.append(status)
        if before is None and status == "expired":
            continue
        if before is None:
            additions.arrived(event)
        if event is not before:
            current[event.id] = touched[event.id] = event
        if event.settled_at is not None and event is not before:
            additions.turned(before, event)
            additions.add(increments)
    new = [event for key, event in sorted(touched.items()) if key not in stored]
    changed = [event for key, event in sorted(touched.items()) if key in stored]
    return Outcome(statuses, new, changed, additions)
