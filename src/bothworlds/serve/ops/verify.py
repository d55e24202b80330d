"""Verifying a store: rebuilds all counters from the log and compares them exactly with the stored ones.

Blocks of time are rebuilt as well. Stored ranges may be nested, since an old event may be counted late; they are folded
into the largest ones, and so are the ranges that resets have removed, and those of checkpoints. Every event, and every
adjustment by its own time, belongs to one of these.

Checkpoints stand in for deleted events; their signatures are checked. The history counts settled pages for itself, so
that a page that was not learned from, and is missing, is found as well; imported pages are not in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import msgspec

from ..checkpoints import Checkpoint, checkpoint_key, is_genuine, opened, page_of
from ..model import DRAW_KEY, Eligibility, Increments, Segment, rfc3339, split_counter_key
from ..rewards import redrawn
from ..settlement import cells_of, mixture_sums, observed_losses, spread_loss, version_of
from ..stores.base import Store
from ..time_blocks import TimeBlock, decode_cells, largest_ranges, second_of

__all__ = ["Difference", "Verification", "verify"]

Cells = dict[tuple[int, int], list[int]]
Range = tuple[int, int]
MAX_OBSERVED = 10_000  # sums of losses held before they are spread over items
MAX_LISTED = 1000  # differences returned; all are counted
ALL_TIME = 1 << 62  # milliseconds
Pages = Counter[tuple[int, str, str]]  # surface id, segment, arm -> settled pages; the arm of imported ones is empty


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
        segment, learner = split_counter_key(self.segment)
        where = f"segment {segment!r}" + (f", learner {learner}" if learner else "")
        return (
            f"surface {self.surface!r}, {where}: {self.counter}{place} is stored as {self.stored}, "
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
    deleted: int = 0  # events that checkpoints stand in for
    checkpoints: int = 0
    forged: tuple[str, ...] = ()  # checkpoints that are not as they were signed, in words

    @property
    def clean(self) -> bool:
        return self.n_differences == 0 and not self.forged


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


def verify(store: Store, draw_key: bytes | None = None) -> Verification:
    """Rebuild loss, shows, clicks and rounds from settled events, checkpoints and adjustments, and compare.

    Compares the sums of the whole segment, and those of every block of time. Streams the log once and needs memory for
    one number per counter and block. A service may write meanwhile: all reads see one snapshot, if the store has
    snapshots. ``draw_key`` replaces that of the store, from which the key of the signatures is derived. Blocks; raises
    StoreError.
    """
    with getattr(store, "snapshot", nullcontext)():
        checkpoints, forged = _checkpoints(store, store.get(DRAW_KEY) if draw_key is None else draw_key)
        stored = _stored_blocks(store)
        rebuilt = _with_ranges(store, stored, checkpoints)
        pages: Pages = Counter()
        wrong_draws = _add_events(store, rebuilt, pages)
        n_events = pages.total()
        _add_checkpoints(checkpoints, rebuilt, pages)
        n_adjustments = _add_adjustments(store, rebuilt)
        n_counters, differences, n_segments = _compare(store, rebuilt)
        differences += _compare_blocks(store, stored, rebuilt) + wrong_draws
        differences += _compare_pages(store, pages)
    return Verification(
        n_events,
        n_adjustments,
        n_segments,
        n_counters,
        len(differences),
        tuple(sorted(differences, key=str)[:MAX_LISTED]),
        sum(len(sums.ranges) for sums in rebuilt.values()),
        pages.total() - n_events,
        len(checkpoints),
        tuple(forged[:MAX_LISTED]),
    )


def _checkpoints(store: Store, draw_key: bytes | None) -> tuple[list[Checkpoint], list[str]]:
    """Returns all checkpoints that can be read, and a sentence about each that is not as it was signed."""
    key = checkpoint_key(draw_key or b"")
    names = {surface.id: surface.name for surface in store.surfaces()}
    found, forged = [], []
    for stored in store.checkpoints():
        times = " to ".join(rfc3339(1000 * second) for second in (stored.start, stored.until))
        place = f"surface {names.get(stored.surface_id, '')!r}, segment {stored.segment!r}: the checkpoint of {times}"
        try:
            found.append(opened(stored))
        except ValueError:
            forged.append(f"{place} cannot be read")
            continue
        if not is_genuine(stored, key):
            forged.append(f"{place} is not as it was signed")
    return found, forged


def _stored_blocks(store: Store) -> Stored:
    return {
        (surface.id, name): list(store.blocks(surface.id, name).values())
        for surface in store.surfaces()
        for name in store.segment_names(surface.id)
    }


def _with_ranges(store: Store, stored: Stored, checkpoints: Iterable[Checkpoint]) -> Rebuilt:
    """Returns empty sums for the largest ranges of every segment: stored, removed by resets, and of checkpoints."""
    ranges: dict[tuple[int, str], set[Range]] = {
        key: {(block.start, block.until) for block in blocks} for key, blocks in stored.items()
    }
    for adjustment in store.adjustments():
        added = adjustment.increments
        known = ranges.setdefault((added.surface_id, added.segment), set())
        known |= {(block.start, block.until) for block in adjustment.removed}
    for one in checkpoints:
        ranges.setdefault((one.surface_id, one.segment), set()).add((one.start, one.until))
    rebuilt = {}
    for key, known in ranges.items():
        cut = store.boundaries(*key)[0]
        rebuilt[key] = _SegmentSums(largest_ranges(known | {(0, cut)} if cut else known))
    return rebuilt


def _add_events(store: Store, rebuilt: Rebuilt, pages: Pages) -> list[Difference]:
    """Add the settled events; returns those whose clicks are not those of their rewards."""
    wrong_draws = []
    names = {surface.id: surface.name for surface in store.surfaces()}
    for stored in store.settled():
        pages[stored.surface_id, *page_of(stored)] += 1
        event = redrawn(stored)
        if event.clicks != stored.clicks:
            name = f"mask of clicks drawn for event {event.id.hex()}"
            surface = names.get(event.surface_id, "")
            wrong_draws.append(Difference(surface, event.segment, name, -1, -1, stored.clicks, event.clicks))
        if event.learn:
            segment = rebuilt.get((event.surface_id, event.counter_key))
            if segment is None:
                segment = rebuilt[event.surface_id, event.counter_key] = _SegmentSums()
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
    return wrong_draws


def _add_checkpoints(checkpoints: Iterable[Checkpoint], rebuilt: Rebuilt, pages: Pages) -> None:
    for one in checkpoints:
        sums = rebuilt[one.surface_id, one.segment].at(one.start)
        sums.rounds += one.sums.rounds
        sums.add_mixture(one.sums.mixture)
        sums.add(map(tuple, one.sums.cells.tolist()))
        for version, count in one.settled:
            sums.add_settled(version, count)
        pages.update({(one.surface_id, *place): count for place, count in one.pages.items()})


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


def _compare_pages(store: Store, pages: Pages) -> list[Difference]:
    """Returns the differences between the settled pages of the log and those that the history has counted."""
    differences = []
    for surface in store.surfaces():
        history = store.history(surface.id, 0, ALL_TIME, ALL_TIME)
        counted = {(row["segment"], row["arm"]): row["settled"] for row in history}
        logged = {(segment, arm): count for (id, segment, arm), count in pages.items() if id == surface.id and arm}
        for place in sorted(counted.keys() | logged.keys()):
            values = counted.get(place, 0), logged.get(place, 0)
            if values[0] != values[1]:
                differences.append(Difference(surface.name, place[0], f"pages of {place[1]}", -1, -1, *values))
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
