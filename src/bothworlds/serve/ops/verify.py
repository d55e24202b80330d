"""Verifying a store: rebuilds all counters from the log and compares them exactly with the stored ones."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import msgspec

from ..model import Eligibility, Increments
from ..settlement import cells_of, observed_losses, spread_loss
from ..stores.base import Store

__all__ = ["Difference", "Verification", "verify"]

Cells = dict[tuple[int, int], list[int]]
MAX_OBSERVED = 10_000  # sums of losses held before they are spread over items
MAX_LISTED = 1000  # differences returned; all are counted


class Difference(msgspec.Struct, frozen=True):
    """A stored counter that differs from the log; ``item`` and ``slot`` are -1 for rounds."""

    surface: str
    segment: str
    counter: str
    item: int
    slot: int
    stored: int
    rebuilt: int

    def __str__(self) -> str:
        place = "" if self.item < 0 else f" of item {self.item} at slot {self.slot}"
        return (
            f"surface {self.surface!r}, segment {self.segment!r}: {self.counter}{place} is stored as {self.stored}, "
            f"and the log gives {self.rebuilt}"
        )


class Verification(msgspec.Struct, frozen=True):
    """How much was compared, and the differences: the first ``MAX_LISTED`` of ``n_differences``."""

    events: int
    adjustments: int
    segments: int
    counters: int
    n_differences: int
    differences: tuple[Difference, ...]

    @property
    def clean(self) -> bool:
        return self.n_differences == 0


class _Sums:
    """The counters of one segment, rebuilt from the log."""

    def __init__(self) -> None:
        self.rounds = 0
        self.cells: Cells = {}
        self.observed: dict[tuple[Eligibility, int], int] = {}

    def add(self, cells: Iterable[tuple[int, int, int, int, int]]) -> bool:
        changed = False
        for item, slot, loss, shown, clicked in cells:
            totals = self.cells.get((item, slot))
            if totals is None:
                totals = self.cells[item, slot] = [0, 0, 0]
            totals[0] += loss
            totals[1] += shown
            totals[2] += clicked
            changed = True
        return changed

    def observe(self, eligibility: Eligibility, losses: Iterable[tuple[int, int]]) -> None:
        """Add losses observed at slots, which are charged to the items that could not be shown there."""
        for slot, loss in losses:
            key = (eligibility, slot)
            self.observed[key] = self.observed.get(key, 0) + loss
        if len(self.observed) > MAX_OBSERVED:
            self.charge()

    def charge(self) -> None:
        """Spread the observed losses over items; they are summed first, since most events have the same eligibility."""
        for (eligibility, slot), loss in self.observed.items():
            self.add((item, slot, charged, 0, 0) for item, slot, charged in spread_loss(eligibility, slot, loss))
        self.observed.clear()


def verify(store: Store) -> Verification:
    """Rebuild loss, shows, clicks and rounds from settled events and adjustments, and compare with the counters.

    Streams the log once and needs memory for one number per counter. A service may write meanwhile: all reads see one
    snapshot, if the store has snapshots. Blocks; raises StoreError.
    """
    with getattr(store, "snapshot", nullcontext)():
        rebuilt: dict[tuple[int, str], _Sums] = {}
        n_events = _add_events(store, rebuilt)
        n_adjustments = _add_adjustments(store, rebuilt)
        n_counters, differences, n_segments = _compare(store, rebuilt)
    return Verification(
        n_events,
        n_adjustments,
        n_segments,
        n_counters,
        len(differences),
        tuple(sorted(differences, key=str)[:MAX_LISTED]),
    )


def _add_events(store: Store, rebuilt: dict[tuple[int, str], _Sums]) -> int:
    count = 0
    for event in store.settled():
        count += 1
        if event.learn:
            sums = rebuilt.get((event.surface_id, event.segment))
            if sums is None:
                sums = rebuilt[event.surface_id, event.segment] = _Sums()
            sums.rounds += sums.add(cells_of(event))
            sums.observe(event.eligibility, observed_losses(event))
    for sums in rebuilt.values():
        sums.charge()
    return count


def _add_adjustments(store: Store, rebuilt: dict[tuple[int, str], _Sums]) -> int:
    count = 0
    for adjustment in store.adjustments():
        count += 1
        added: Increments = adjustment.increments
        sums = rebuilt.setdefault((added.surface_id, added.segment), _Sums())
        sums.rounds += added.rounds
        sums.add((cell.item, cell.slot, cell.loss, cell.shown, cell.clicked) for cell in added.cells)
    return count


def _compare(store: Store, rebuilt: dict[tuple[int, str], _Sums]) -> tuple[int, list[Difference], int]:
    count, differences, n_segments = 0, [], 0
    for surface in store.surfaces():
        segments = {segment.name: segment for segment in store.segments(surface.id)}
        names = sorted(segments.keys() | {name for id, name in rebuilt if id == surface.id})
        n_segments += len(names)
        for name in names:
            stored = segments.get(name)
            sums = rebuilt.get((surface.id, name), _Sums())
            pairs = [("rounds", -1, -1, stored.rounds if stored else 0, sums.rounds)]
            for k, counter in enumerate(("loss", "shown", "clicked")):
                stored_cells: dict[tuple[int, int], int] = getattr(stored, counter) if stored else {}
                for item, slot in sorted(stored_cells.keys() | sums.cells.keys()):
                    value = stored_cells.get((item, slot), 0)
                    pairs.append((counter, item, slot, value, sums.cells.get((item, slot), (0, 0, 0))[k]))
            count += len(pairs)
            differences += [Difference(surface.name, name, *pair) for pair in pairs if pair[3] != pair[4]]
    return count, differences, n_segments
