"""Totals of a batch of feedback, computed before anything is written: per second and cell, segment, and minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from ..model import Eligibility, Event, Increments, Status, VerifiedFeedback
from ..rewards import page_squares
from ..settlement import apply_feedback, spread_loss
from ..time_blocks import TimeBlock, cells_from, merged, second_of
from ..visitors import bucket_of

__all__ = ["HISTORY_COLUMNS", "HOUR", "MINUTE", "BatchOutcome", "BatchTotals", "apply_batch"]

MINUTE, HOUR = 60_000, 3_600_000
HISTORY_COLUMNS = ("events", "settled", "shows", "clicks", "clicked", "squares", "late", "rewards", "reward_squares")

Totals = list[int]


class BatchTotals:
    """Sums over a batch, so that each counter is written once, no matter how many events change it.

    ``now`` is the time of the batch, if it has one.
    """

    def __init__(self, now: int | None = None) -> None:
        self.now = now
        self.rounds: dict[tuple[int, str], int] = {}
        self.versions: dict[tuple[int, str, int], int] = {}  # settled events by version of predictions
        self.history: dict[tuple[int, int, str, str], Totals] = {}
        self.visitors: dict[tuple[int, int, str, str, int], Totals] = {}  # pages, clicks and squares of a bucket
        self._seconds: dict[tuple[int, str, int], _SecondTotals] = {}
        self._given_back: dict[tuple[int, str, int], list[TimeBlock]] = {}

    def add(self, increments: Increments | None) -> None:
        """Adds the increments of one event or adjustment."""
        if increments is None or not (increments.cells or increments.rounds):
            return
        segment = (increments.surface_id, increments.segment)
        self.rounds[segment] = self.rounds.get(segment, 0) + increments.rounds
        if increments.version and increments.rounds:
            self.add_settled(*segment, [(increments.version, increments.rounds)])
        key = (*segment, second_of(increments.at))
        second = self._seconds.get(key)
        if second is None:
            second = self._seconds[key] = _SecondTotals()
        second.add(increments)

    def add_settled(self, surface_id: int, segment: str, settled: Iterable[tuple[int, int]]) -> None:
        """Adds what an adjustment adds to the settled events of versions of predictions."""
        for number, count in settled:
            version = (surface_id, segment, number)
            self.versions[version] = self.versions.get(version, 0) + count

    def cells(self) -> dict[tuple[int, str, int, int], Totals]:
        """Returns loss, shows and clicks to add to every cell (surface id, segment, item, slot)."""
        cells: dict[tuple[int, str, int, int], Totals] = {}
        for (surface_id, segment, _), second in self._seconds.items():
            for (item, slot), sums in second.charged_cells().items():
                totals = cells.setdefault((surface_id, segment, item, slot), [0, 0, 0])
                for k, value in enumerate(sums):
                    totals[k] += value
        return cells

    def blocks(self) -> dict[tuple[int, str], list[TimeBlock]]:
        """Returns the blocks of one second to add to every segment (surface id, segment), in order."""
        blocks: dict[tuple[int, str], list[TimeBlock]] = {}
        for (surface_id, segment, start), second in sorted(self._seconds.items()):
            cells = cells_from(second.charged_cells())
            block = TimeBlock(start, start + 1, second.rounds, cells, second.mixture)
            if given_back := self._given_back.get((surface_id, segment, start)):
                block = merged(start, start + 1, [block, *given_back])
            if block.rounds or block.cells.size or any(block.mixture):
                blocks.setdefault((surface_id, segment), []).append(block)
        return blocks

    def give_back(self, surface_id: int, segment: str, at: int, blocks: list[TimeBlock]) -> None:
        """Adds removed blocks to the block of the time ``at``, where a reset is counted, but not to the counters."""
        self._given_back.setdefault((surface_id, segment, second_of(at)), []).extend(blocks)

    def count_decision(self, event: Event) -> None:
        """Counts a new event in the history of the minute in which it was created."""
        self._history_of(event)[0] += 1

    def uncount_decision(self, event: Event) -> None:
        """Takes back what ``count_decision`` has counted, for an event that is deleted before it has settled."""
        self._history_of(event)[0] -= 1

    def count_outcome(self, before: Event | None, after: Event) -> None:
        """Counts the outcome of a settled event in the history; the outcome of ``before`` is replaced."""
        totals = self._history_of(after)
        for k, value in enumerate(_outcome(after), start=1):
            totals[k] += value
        if before is not None and before.settled_at is not None:
            for k, value in enumerate(_outcome(before), start=1):
                totals[k] -= value
        if after.visitor is not None:
            self._count_visitor(after.visitor, after, 1)
            if before is not None and before.settled_at is not None:
                self._count_visitor(after.visitor, before, -1)

    def _count_visitor(self, visitor: bytes, event: Event, sign: int) -> None:
        """Counts the outcome of a settled event in the bucket of its visitor, in the hour in which it was created.

        Rewards, in units of 1 / ``LOSS_UNIT``, take the place of clicks where there are some.
        """
        hour = event.created_at - event.created_at % HOUR
        key = (event.surface_id, hour, event.segment, event.arm, bucket_of(visitor))
        totals = self.visitors.setdefault(key, [0, 0, 0])
        pages, _, clicks, _, squares, _, rewards, reward_squares = _outcome(event)
        for k, value in enumerate((pages, rewards, reward_squares) if event.rewards else (pages, clicks, squares)):
            totals[k] += sign * value

    def _history_of(self, event: Event) -> Totals:
        minute = event.created_at - event.created_at % MINUTE
        key = (event.surface_id, minute, event.segment, event.arm)
        return self.history.setdefault(key, [0] * len(HISTORY_COLUMNS))


class _SecondTotals:
    """The totals of one segment in one second."""

    __slots__ = ("cells", "mixture", "observed", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        self.mixture = (0, 0, 0)
        self.cells: dict[tuple[int, int], Totals] = {}
        # Losses by slot for each set of eligible items: spread over items once per batch, not once per event.
        self.observed: dict[Eligibility, dict[int, int]] = {}

    def add(self, increments: Increments) -> None:
        self.rounds += increments.rounds
        if increments.mixture != (0, 0, 0):
            (a, b, c), (d, e, f) = self.mixture, increments.mixture
            self.mixture = (a + d, b + e, c + f)
        for cell in increments.cells:
            totals = self.cells.setdefault((cell.item, cell.slot), [0, 0, 0])
            totals[0] += cell.loss
            totals[1] += cell.shown
            totals[2] += cell.clicked
        if increments.observed:
            losses = self.observed.setdefault(increments.eligibility, {})
            for slot, loss in increments.observed:
                losses[slot] = losses.get(slot, 0) + loss

    def charged_cells(self) -> dict[tuple[int, int], Totals]:
        """Returns the cells; losses observed at slots are first charged to the items that could not be shown."""
        for eligibility, losses in self.observed.items():
            for slot, observed in losses.items():
                for item, _, loss in spread_loss(eligibility, slot, observed):
                    self.cells.setdefault((item, slot), [0, 0, 0])[0] += loss
        self.observed.clear()
        return self.cells


def _outcome(event: Event) -> tuple[int, ...]:
    """Returns the history columns of a settled event, without ``events``."""
    clicks = event.clicks.bit_count()
    late, rewards = event.late.bit_count(), event.rewards
    return 1, len(event.items), clicks, int(clicks > 0), clicks * clicks, late, sum(rewards), page_squares(rewards)


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
    deleted: Mapping[bytes, Status],
) -> BatchOutcome:
    """Applies feedback in order to the stored events, or to the events of the tokens where none is stored.

    Feedback on a surface that does not exist (it was deleted, or the store is a backup older than the token) is
    rejected alone. ``resets`` maps (surface id, counter key) to the time of the last reset, ``deleted`` the ids of
    deleted events to the status of feedback on them.
    """
    current = dict(stored)
    touched: dict[bytes, Event] = {}
    statuses: list[Status] = []
    totals = BatchTotals(now)
    for given in feedback:
        if given.event.surface_id not in surface_ids:
            statuses.append("rejected")
            continue
        if given.event.id in deleted:
            statuses.append(deleted[given.event.id])
            continue
        before = current.get(given.event.id)
        reset_at = resets.get((before.surface_id, before.counter_key)) if before is not None else None
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
