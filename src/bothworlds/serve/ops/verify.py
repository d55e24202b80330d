"""Verifying a store: rebuilds all counters from the log and compares them exactly with the stored ones.

Blocks of time are rebuilt as well. Stored ranges may be nested, since an old event may be counted late; they are folded
into the largest ones, and so are the ranges that resets have removed. Every event, and every adjustment by its own
time, belongs to one of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import msgspec

from ..model import Eligibility, Increments, Segment, rfc3339
from ..settlement import cells_of, mixture_sums, observed_losses, spread_loss, version_of
from ..stores.base import Store
from ..time_blocks import TimeBlock, decode_cells, largest_ranges, second_of

__all__ = ["Difference", "Verification", "verify"]

Cells = dict[tuple[int, int], list[int]]
Range = tuple[int, int]
MAX_OBSERVED = 10_000  # sums of losses held before they are spread over items
MAX_LISTED = 1000  # differences returned; all are counted


class Difference(msgspec.Struct, frozen=True):
    """A stored counter that differs from the log; ``item`` and ``slot`` are -1 for rounds.

    ``block`` is the range of seconds of the block that it belongs to, empty for the counters of the whole segment.
    """

    surface: str
    segment: str
    counter: str
    item: int
    slot: int
    stored: int
    rebuilt: int
    block: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = "" if self.item < 0 else f" of item {self.item} at slot {self.slot}"
        if self.block:
            place += " in the block of time " + " to ".join(rfc3339(1000 * second) for second in self.block)
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
    blocks: int = 0

    @property
    def clean(self) -> bool:
        return self.n_differences == 0


class _Sums:
    """The counters of one segment, rebuilt from the log."""

    def __init__(self) -> None:
        self.rounds = 0
        self.mixture = [0, 0, 0]
        self.versions: dict[int, int] = {}  # settled events by version of predictions
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

    def add_mixture(self, values: Iterable[int], sign: int = 1) -> None:
        self.mixture = [total + sign * value for total, value in zip(self.mixture, values, strict=True)]

    def add_settled(self, version: int, count: int) -> None:
        self.versions[version] = self.versions.get(version, 0) + count

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


class _SegmentSums:
    """What the log says about one segment: one ``_Sums`` for each of the largest ranges, and one for all other times.

    Other times must add up to nothing.
    """

    def __init__(self, ranges: Sequence[Range] = ()) -> None:
        self.ranges = tuple(ranges)
        self._starts = [start for start, _ in ranges]
        self.sums = [_Sums() for _ in range(len(ranges) + 1)]

    def at(self, second: int) -> _Sums:
        """Returns the sums of the range with this second."""
        k = bisect_right(self._starts, second) - 1
        return self.sums[k] if k >= 0 and second < self.ranges[k][1] else self.sums[-1]

    def total(self) -> _Sums:
        total = _Sums()
        for sums in self.sums:
            total.rounds += sums.rounds
            total.add((*key, values[0], values[1], values[2]) for key, values in sums.cells.items())
            for version, count in sums.versions.items():
                total.add_settled(version, count)
        return total


Rebuilt = dict[tuple[int, str], _SegmentSums]
Stored = dict[tuple[int, str], list[TimeBlock]]


def verify(store: Store) -> Verification:
    """Rebuild loss, shows, clicks and rounds from settled events and adjustments, and compare with the counters.

    Compares the sums of the whole segment, and those of every block of time. Streams the log once and needs memory for
    one number per counter and block. A service may write meanwhile: all reads see one snapshot, if the store has
    snapshots. Blocks; raises StoreError.
    """
    with getattr(store, "snapshot", nullcontext)():
        stored = _stored_blocks(store)
        rebuilt = _with_ranges(store, stored)
        n_events = _add_events(store, rebuilt)
        n_adjustments = _add_adjustments(store, rebuilt)
        n_counters, differences, n_segments = _compare(store, rebuilt)
        differences += _compare_blocks(store, stored, rebuilt)
    return Verification(
        n_events,
        n_adjustments,
        n_segments,
        n_counters,
        len(differences),
        tuple(sorted(differences, key=str)[:MAX_LISTED]),
        sum(len(sums.ranges) for sums in rebuilt.values()),
    )


def _stored_blocks(store: Store) -> Stored:
    return {
        (surface.id, name): list(store.blocks(surface.id, name).values())
        for surface in store.surfaces()
        for name in store.segment_names(surface.id)
    }


def _with_ranges(store: Store, stored: Stored) -> Rebuilt:
    """Returns empty sums for the largest ranges of every segment: stored ones, and those that resets have removed."""
    ranges: dict[tuple[int, str], set[Range]] = {
        key: {(block.start, block.until) for block in blocks} for key, blocks in stored.items()
    }
    for adjustment in store.adjustments():
        added = adjustment.increments
        known = ranges.setdefault((added.surface_id, added.segment), set())
        known |= {(block.start, block.until) for block in adjustment.removed}
    rebuilt = {}
    for key, known in ranges.items():
        cut = store.boundaries(*key)[0]
        rebuilt[key] = _SegmentSums(largest_ranges(known | {(0, cut)} if cut else known))
    return rebuilt


def _add_events(store: Store, rebuilt: Rebuilt) -> int:
    count = 0
    for event in store.settled():
        count += 1
        if event.learn:
            segment = rebuilt.get((event.surface_id, event.segment))
            if segment is None:
                segment = rebuilt[event.surface_id, event.segment] = _SegmentSums()
            sums = segment.at(second_of(event.created_at))
            sums.rounds += sums.add(cells_of(event))
            sums.observe(event.eligibility, observed_losses(event))
            if event.mixture or event.prediction:
                sums.add_mixture(mixture_sums(event))
            if version := version_of(event):
                sums.add_settled(version, 1)
    for segment in rebuilt.values():
        for sums in segment.sums:
            sums.charge()
    return count


def _add_adjustments(store: Store, rebuilt: Rebuilt) -> int:
    count = 0
    for adjustment in store.adjustments():
        count += 1
        added: Increments = adjustment.increments
        segment = rebuilt.setdefault((added.surface_id, added.segment), _SegmentSums())
        own = segment.at(second_of(adjustment.at))
        own.rounds += added.rounds
        own.add((cell.item, cell.slot, cell.loss, cell.shown, cell.clicked) for cell in added.cells)
        for version, settled in adjustment.settled:
            own.add_settled(version, settled)
        for block in adjustment.removed:  # what the adjustment subtracts belongs to these blocks, not to its own time
            cells = decode_cells(block.cells)
            segment.at(block.start).add_mixture(block.mixture, -1)
            for sums, sign in ((segment.at(block.start), -1), (own, 1)):
                sums.rounds += sign * block.rounds
                sums.add((item, slot, *(sign * value for value in values)) for item, slot, *values in cells.tolist())
    return count


def _compare(store: Store, rebuilt: Rebuilt) -> tuple[int, list[Difference], int]:
    count, differences, n_segments = 0, [], 0
    for surface in store.surfaces():
        segments = {segment.name: segment for segment in store.segments(surface.id)}
        names = sorted(segments.keys() | {name for id, name in rebuilt if id == surface.id})
        n_segments += len(names)
        for name in names:
            stored = segments.get(name)
            sums = rebuilt.get((surface.id, name), _SegmentSums()).total()
            cells = {} if stored is None else _cells_of(stored)
            pairs = list(_pairs(stored.rounds if stored else 0, cells, sums))
            pairs += _version_pairs(stored.settled if stored else {}, sums.versions)
            count += len(pairs)
            differences += [Difference(surface.name, name, *pair) for pair in pairs if pair[3] != pair[4]]
    return count, differences, n_segments


def _cells_of(segment: Segment) -> Cells:
    tables = (segment.loss, segment.shown, segment.clicked)
    keys = {key for table in tables for key in table}
    return {key: [table.get(key, 0) for table in tables] for key in keys}


def _compare_blocks(store: Store, stored: Stored, rebuilt: Rebuilt) -> list[Difference]:
    """Returns the differences of blocks; other times than those of blocks are reported as the block 0 to 0."""
    names = {surface.id: surface.name for surface in store.surfaces()}
    differences = []
    for (surface_id, segment), known in rebuilt.items():
        sums_of_blocks = _SegmentSums(known.ranges)
        for block in stored.get((surface_id, segment), ()):
            sums = sums_of_blocks.at(block.start)
            sums.rounds += block.rounds
            sums.add_mixture(block.mixture)
            sums.add(map(tuple, block.cells.tolist()))
        for one, found, expected in zip((*known.ranges, (0, 0)), sums_of_blocks.sums, known.sums, strict=True):
            differences += [
                Difference(names.get(surface_id, ""), segment, *pair, one)
                for pair in (*_pairs(found.rounds, found.cells, expected), *_mixture_pairs(found, expected))
                if pair[3] != pair[4]
            ]
    return differences


def _version_pairs(stored: Mapping[int, int], rebuilt: Mapping[int, int]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yields the settled events of versions of predictions, as ``_pairs`` does."""
    for version in sorted(stored.keys() | rebuilt.keys()):
        yield f"settled with predictions {version}", -1, -1, stored.get(version, 0), rebuilt.get(version, 0)


def _mixture_pairs(found: _Sums, expected: _Sums) -> Iterator[tuple[str, int, int, int, int]]:
    """Yields the sums of the comparison of two learners, as ``_pairs`` does."""
    for name, stored, rebuilt in zip(("spread", "difference", "variance"), found.mixture, expected.mixture):
        yield name, -1, -1, stored, rebuilt


def _pairs(rounds: int, cells: Cells, expected: _Sums) -> Iterator[tuple[str, int, int, int, int]]:
    """Yields counter, item, slot, and the stored and the rebuilt value of every counter."""
    yield "rounds", -1, -1, rounds, expected.rounds
    keys = sorted(cells.keys() | expected.cells.keys())
    nothing = [0, 0, 0]
    for k, counter in enumerate(("loss", "shown", "clicked")):
        for item, slot in keys:
            values = cells.get((item, slot), nothing), expected.cells.get((item, slot), nothing)
            yield counter, item, slot, values[0][k], values[1][k]
