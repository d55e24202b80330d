"""Totals of a batch of feedback, computed before anything is written: per cell, per segment and per minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from ..model import Eligibility, Event, Increments, Status, VerifiedFeedback
from ..settlement import apply_feedback, spread_loss

__all__ = ["HISTORY_COLUMNS", "MINUTE", "BatchOutcome", "BatchTotals", "apply_batch"]

MINUTE = 60_000
HISTORY_COLUMNS = ("events", "settled", "shows", "clicks", "clicked", "squares", "late")

Totals = list[int]


class BatchTotals:
    """Sums over a batch, so that each counter is written once, no matter how many events change it."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[int, str], int] = {}
        self._cells: dict[tuple[int, str, int, int], Totals] = {}
        # Losses by slot for each set of eligible items: spread over items once per batch, not once per event.
        self._observed: dict[tuple[int, str, Eligibility], dict[int, int]] = {}
        self.history: dict[tuple[int, int, str, str], Totals] = {}

    def add(self, increments: Increments | None) -> None:
        """Adds the increments of one event or adjustment."""
        if increments is None or not (increments.cells or increments.rounds):
            return
        segment = (increments.surface_id, increments.segment)
        self.rounds[segment] = self.rounds.get(segment, 0) + increments.rounds
        for cell in increments.cells:
            totals = self._cells.setdefault((*segment, cell.item, cell.slot), [0, 0, 0])
            totals[0] += cell.loss
            totals[1] += cell.shown
            totals[2] += cell.clicked
        if increments.observed:
            losses = self._observed.setdefault((*segment, increments.eligibility), {})
            for slot, loss in increments.observed:
                losses[slot] = losses.get(slot, 0) + loss

    def cells(self) -> dict[tuple[int, str, int, int], Totals]:
        """Returns loss, shows and clicks to add to every cell (surface id, segment, item, slot)."""
        cells = {cell: list(totals) for cell, totals in self._cells.items()}
        for (surface_id, segment, eligibility), losses in self._observed.items():
            for slot, observed in losses.items():
                for item, _, loss in spread_loss(eligibility, slot, observed):
                    cells.setdefault((surface_id, segment, item, slot), [0, 0, 0])[0] += loss
        return cells

    def count_decision(self, event: Event) -> None:
        """Counts a new event in the history of the minute in which it was created."""
        self._history_of(event)[0] += 1

    def count_outcome(self, before: Event | None, after: Event) -> None:
        """Counts the outcome of a settled event in the history; the outcome of ``before`` is replaced."""
        totals = self._history_of(after)
        for k, value in enumerate(_outcome(after), start=1):
            totals[k] += value
        if before is not None and before.settled_at is not None:
            for k, value in enumerate(_outcome(before), start=1):
                totals[k] -= value

    def _history_of(self, event: Event) -> Totals:
        minute = event.created_at - event.created_at % MINUTE
        key = (event.surface_id, minute, event.segment, event.arm)
        return self.history.setdefault(key, [0] * len(HISTORY_COLUMNS))


def _outcome(event: Event) -> tuple[int, ...]:
    """Returns the history columns of a settled event, without ``events``."""
    clicks = event.clicks.bit_count()
    return 1, len(event.items), clicks, int(clicks > 0), clicks * clicks, event.late.bit_count()


class BatchOutcome(NamedTuple):
    """The result of a batch: a status for each piece of feedback, new and changed events, and totals to add."""

    statuses: list[Status]
    new: list[Event]
    changed: list[Event]
    totals: BatchTotals


def apply_batch(
    stored: Mapping[bytes, Event],
    feedback: Sequence[VerifiedFeedback],
    surface_ids: Set[int],
    resets: Mapping[tuple[int, str], int],
    now: int,
) -> BatchOutcome:
    """Applies feedback in order to the stored events, or to the events of the tokens where none is stored.

    Feedback on a surface that does not exist (the store is a backup older than the token) is rejected alone. ``resets``
    maps (surface id, segment) to the time of the last reset.
    """
    current = dict(stored)
    touched: dict[bytes, Event] = {}
    statuses: list[Status] = []
    totals = BatchTotals()
    for given in feedback:
        if given.event.surface_id not in surface_ids:
            statuses.append("rejected")
            continue
        before = current.get(given.event.id)
        reset_at = resets.get((before.surface_id, before.segment)) if before is not None else None
        event, increments, status = apply_feedback(before, given, now, reset_at)
        statuses.append(status)
        if before is None and status == "expired":
            continue
        if before is None:
            totals.count_decision(event)
        if event is not before:
            current[event.id] = touched[event.id] = event
        if event.settled_at is not None and event is not before:
            totals.count_outcome(before, event)
            totals.add(increments)
    new = [event for key, event in sorted(touched.items()) if key not in stored]
    changed = [event for key, event in sorted(touched.items()) if key in stored]
    return BatchOutcome(statuses, new, changed, totals)
