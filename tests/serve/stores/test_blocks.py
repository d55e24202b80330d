"""Sums over time: the same events give the same blocks in any order, and merging changes no sum."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.model import CHANGE, Adjustment, Cell, Event, Increments, VerifiedFeedback
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import sql_blocks
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import SqlStore
from bothworlds.serve.stores.sqlite import SqliteDatabase
from bothworlds.serve.time_blocks import (
    AGE,
    TimeBlock,
    cells_from,
    enclosing_range,
    folded,
    largest_ranges,
    max_blocks,
    merged,
    second_of,
)
from tests.serve.postgres_server import PostgresServer

from .conftest import fresh_place
from .samples import NOON, WINDOW, a_surface, an_event

HOUR = 3_600_000
SECOND = second_of(NOON)


def spread_event(number: int, hours: float = 3.0, events: int = 120) -> Event:
    """An event of the learner, one of many that are spread over some hours."""
    at = NOON + round(number * hours * HOUR / events)
    return an_event(
        number, arm="learner", learn=0b111, segment="", created_at=at, expires_at=at + WINDOW,
        late_until=at + WINDOW + 24 * HOUR,
    )  # fmt: skip


def settled(event: Event, clicks: int, final: bool = True) -> VerifiedFeedback:
    return VerifiedFeedback(event=event, clicks=clicks, final=final)


def ranges_and_sums(store: SqlStore, segment: str = "") -> dict[tuple[int, int], tuple[int, list[list[int]]]]:
    """Returns rounds and cells by range; raises if two rows have the same range."""
    found: dict[tuple[int, int], tuple[int, list[list[int]]]] = {}
    for block in store.blocks(1, segment).values():
        assert (block.start, block.until) not in found
        found[block.start, block.until] = block.rounds, block.cells.tolist()
    return found


def total(store: SqlStore, segment: str = "") -> tuple[int, dict[tuple[int, int], tuple[int, ...]]]:
    whole = merged(0, 1, [*store.blocks(1, segment).values(), TimeBlock(0, 1, 0, cells_from({}))])
    return whole.rounds, {(i, j): tuple(sums) for i, j, *sums in whole.cells.tolist() if any(sums)}


def counted(store: SqlStore, segment: str = "") -> tuple[int, dict[tuple[int, int], tuple[int, ...]]]:
    (known,) = [one for one in store.segments(1) if one.name == segment]
    cells = {key: (known.loss[key], known.shown[key], known.clicked[key]) for key in known.loss}
    return known.rounds, {key: sums for key, sums in cells.items() if any(sums)}


def started(store: SqlStore) -> SqlStore:
    store.save_surface(a_surface(), [], [])
    return store


def reset(store: SqlStore, at: int) -> None:
    surface = store.surfaces()[0]
    store.adjust_by(1, lambda found: surface_rules.reset_adjustments(surface, found, at, "ann"), [])


# The partition of time


@given(st.integers(0, 1 << 34), st.integers(0, 1 << 34), st.lists(st.integers(1, 1 << 34), max_size=3))
def test_a_block_is_dyadic_old_enough_and_on_one_side_of_every_boundary(
    second: int, now: int, boundaries: list[int]
) -> None:
    cut, *others = [0, *sorted(boundaries)]
    start, until = enclosing_range(second, second + 1, now, (cut, *others))
    size = until - start
    assert start <= second < until
    assert size & (size - 1) == 0
    assert start % size == 0
    assert size == 1 or max(now - until, start - now) >= AGE * size
    assert not any(start < boundary < until for boundary in others)
    inside = random.Random(second).randrange(start, until)
    assert enclosing_range(inside, inside + 1, now, (cut, *others)) == (start, until)
    later = enclosing_range(second, second + 1, now + 1000, (cut, *others))
    if now >= until:  # what lies back is only ever merged
        assert later[0] <= start < until <= later[1]


@pytest.mark.parametrize("age", [1, 5, 100, 4_000, 86_400, 10 * 365 * 86_400])
def test_the_number_of_blocks_is_bounded(age: int) -> None:
    chance = random.Random(age)
    for now in [1 << 30, (1 << 30) - 1, *(chance.randrange(1 << 29, 1 << 31) for _ in range(200))]:
        count, second = 0, now - 1
        while second >= now - age:
            second = enclosing_range(second, second + 1, now, (0,))[0] - 1
            count += 1
        assert count <= max_blocks(age)


def test_before_the_cut_there_is_one_block() -> None:
    assert enclosing_range(5, 6, 10**6, (100,)) == (0, 100)
    assert enclosing_range(100, 101, 10**6, (100,))[0] >= 100
    assert largest_ranges([(0, 100), (5, 6), (100, 104)]) == [(0, 100), (100, 104)]


def test_folding_keeps_sums() -> None:
    chance = np.random.default_rng(0)
    blocks = [
        TimeBlock(s, s + 1, 1, cells_from({(int(i), 0): (int(s), 1, 0) for i in chance.integers(0, 9, 3)}))
        for s in chance.integers(0, 5000, 300).tolist()
    ]
    made = folded(blocks, 6000, (0,))
    assert len(made) < 50
    assert [one.start for one in made] == sorted({one.start for one in made})
    assert merged(0, 1, made).cells.tolist() == merged(0, 1, blocks).cells.tolist()
    assert sum(one.rounds for one in made) == 300


# Any order gives the same blocks


class MergesByArrival(SqlStore):
    """A broken store: it merges what came one after the other, whenever it was decided."""

    def compact(self, surface_id: int, segment: str, now: int, least: int = 0) -> int:
        rows = sorted(self.blocks(surface_id, segment).items(), key=lambda item: item[0][2])
        made = [
            merged(min(one[0] for one, _ in pair), max(one[1] for one, _ in pair), [block for _, block in pair])
            for pair in (rows[k : k + 2] for k in range(0, len(rows), 2))
        ]

        def work(session: Any) -> None:
            sql_blocks.remove_blocks(session, surface_id, segment)
            for k, block in enumerate(made):
                sql_blocks.insert_blocks(session, surface_id, segment, [block], k)

        self.database.write(work)
        return len(rows) - len(made)


def settle_in_two_orders(one: SqlStore, other: SqlStore) -> tuple[Any, Any]:
    """Settles the same events in two orders, and merges at different times; late clicks come last or first."""
    events = [spread_event(number) for number in range(1, 121)]
    clicks = {event.id: number % 8 for number, event in enumerate(events)}
    late = {event.id: (number // 8) % 8 for number, event in enumerate(events)}
    end = NOON + 4 * HOUR
    started(one), started(other)
    for k, event in enumerate(events):
        one.apply_feedback([settled(event, clicks[event.id])], event.created_at)
        if k % 10 == 0:
            one.compact(1, "", event.created_at)
    for event in events:
        one.apply_feedback([settled(event, late[event.id], False)], end)
    shuffled = events[:]
    random.Random(7).shuffle(shuffled)
    other.save_events(shuffled[:60])
    for event in shuffled[:60]:
        other.apply_feedback([settled(event, late[event.id] | clicks[event.id], False)], event.created_at)
    assert other.settle_overdue(end, 1000) == 60
    for k in range(60, 120, 7):
        batch = [settled(event, clicks[event.id] | late[event.id]) for event in shuffled[k : k + 7]]
        other.apply_feedback(batch, NOON)
    for store in (one, other):
        store.compact(1, "", end)
        assert total(store) == counted(store)
    return ranges_and_sums(one), ranges_and_sums(other)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_two_orders_of_settling_give_equal_blocks(database: str, tmp_path: Path, request: Any) -> None:
    one, other = (
        open_store(fresh_place(database, tmp_path / name, request)) for name in map(str, made_folders(tmp_path))
    )
    blocks, others = settle_in_two_orders(one, other)
    assert blocks == others
    assert 5 < len(blocks) <= max_blocks(4 * 3600)
    assert verify(one).clean
    assert verify(other).clean
    one.close()
    other.close()


def made_folders(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.mark.slow
def test_blocks_that_depend_on_the_order_of_arrival_are_caught(tmp_path: Path) -> None:
    one, other = (MergesByArrival(SqliteDatabase(folder / "store.db")) for folder in made_folders(tmp_path))
    try:
        blocks, others = settle_in_two_orders(one, other)
        assert blocks != others
        assert not verify(one).clean or not verify(other).clean or blocks.keys() != others.keys()
    finally:
        one.close()
        other.close()


@pytest.mark.slow
def test_several_workers_count_and_merge_at_once(postgres: PostgresServer) -> None:
    place = postgres.fresh_address()
    stores = [open_store(place) for _ in range(3)]
    started(stores[0])
    events = [spread_event(number) for number in range(1, 121)]

    def count(store: SqlStore, part: list[Event]) -> None:
        for k, event in enumerate(part):
            store.apply_feedback([settled(event, k % 8)], NOON)
            if k % 3 == 0:
                store.compact(1, "", NOON + 4 * HOUR)

    threads = [threading.Thread(target=count, args=(store, events[k::3])) for k, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert total(stores[0]) == counted(stores[0])
    assert counted(stores[0])[0] == 120
    stores[1].compact(1, "", NOON + 4 * HOUR)
    assert len(ranges_and_sums(stores[2])) <= max_blocks(4 * 3600)
    assert verify(stores[2]).clean
    for store in stores:
        store.close()


@pytest.mark.slow
def test_merging_that_is_interrupted_changes_nothing(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    started(store)
    for number in range(1, 61):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON)
    before = {key: block.cells.tolist() for key, block in store.blocks(1, "").items()}

    def killed(*arguments: Any) -> None:  # after the old rows were deleted
        raise RuntimeError("killed")

    monkeypatch.setattr(sql_blocks, "insert_blocks", killed)
    with pytest.raises(RuntimeError, match="killed"):
        store.compact(1, "", NOON + 4 * HOUR)
    monkeypatch.undo()
    assert {key: block.cells.tolist() for key, block in store.blocks(1, "").items()} == before
    assert store.compact(1, "", NOON + 4 * HOUR) > 0
    assert store.compact(1, "", NOON + 4 * HOUR) == 0
    assert verify(store).clean


@pytest.mark.slow
def test_known_blocks_are_not_read_again(store: SqlStore) -> None:
    started(store)
    for number in range(1, 31):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON)
    known = store.blocks(1, "")
    store.compact(1, "", NOON + 2 * HOUR)
    store.apply_feedback([settled(spread_event(40), 1)], NOON)
    fresh, read = store.blocks(1, ""), store.blocks(1, "", known)
    assert read.keys() == fresh.keys()
    assert all(read[key].cells.tolist() == fresh[key].cells.tolist() for key in fresh)
    kept = {key: known[key]._replace(rounds=77) for key in known}
    again = store.blocks(1, "", kept)
    assert {again[key].rounds for key in again.keys() & known.keys()} <= {77}


# Late clicks, resets, imports


@pytest.mark.slow
def test_a_late_click_changes_the_block_of_its_decision(store: SqlStore) -> None:
    started(store)
    for number in range(1, 61):
        store.apply_feedback([settled(spread_event(number), 0)], NOON)
    now = NOON + 20 * HOUR
    store.compact(1, "", now)
    before = ranges_and_sums(store)
    event = spread_event(3)
    assert store.apply_feedback([settled(event, 0b111, False)], now) == ["late_applied"]
    store.compact(1, "", now)
    after = ranges_and_sums(store)
    (changed,) = [one for one in after if after[one] != before[one]]
    assert after.keys() == before.keys()
    assert changed[0] <= second_of(event.created_at) < changed[1]
    assert after[changed][0] == before[changed][0]
    assert verify(store).clean


@pytest.mark.slow
def test_a_reset_empties_the_blocks_and_the_log_still_explains_them(store: SqlStore) -> None:
    started(store)
    for number in range(1, 41):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON + 5)
    store.compact(1, "", NOON + 2 * HOUR)
    assert store.set_number(1, "", CHANGE, max(ranges_and_sums(store))[0], expected=None)
    reset(store, NOON + 6)
    assert store.blocks(1, "") == {}
    assert store.numbers(1, "") == {}
    assert verify(store).clean
    # An event of the same time that settles after the reset, and a late click on one that settled before it.
    assert store.apply_feedback([settled(spread_event(41), 1)], NOON + 7) == ["accepted"]
    assert store.apply_feedback([settled(spread_event(40), 7, False)], NOON + 8) == ["expired"]
    assert total(store) == counted(store)
    assert total(store)[0] == 1
    assert verify(store).clean
    reset(store, NOON + 9)
    assert verify(store).clean
    assert len([one for one in store.adjustments() if one.removed]) == 2


@pytest.mark.slow
def test_imports_before_and_after_a_reset_are_told_apart(store: SqlStore) -> None:
    started(store)

    def imported(numbers: range) -> list[Event]:
        return [structs.replace(spread_event(n), settled_at=NOON, settled_by="import", clicks=n % 8) for n in numbers]

    assert store.import_events(imported(range(1, 51))) == 50
    assert len(store.blocks(1, "")) < 50  # merged before they were written
    reset(store, NOON + 10)
    assert store.import_events(imported(range(51, 101))) == 50
    assert store.import_events(imported(range(1, 101))) == 0
    assert total(store) == counted(store)
    assert total(store)[0] == 50
    assert verify(store).clean
    store.compact(1, "", NOON + 9 * HOUR)
    assert verify(store).clean


@pytest.mark.slow
def test_a_reset_that_was_computed_from_old_counters_keeps_blocks_and_counters_equal(store: SqlStore) -> None:
    started(store)
    store.apply_feedback([settled(spread_event(1), 1)], NOON)
    (old,) = store.segments(1)
    store.apply_feedback([settled(spread_event(2), 1)], NOON)
    store.adjust(surface_rules.reset_adjustments(store.surfaces()[0], [old], NOON + 1, "ann"), [])
    assert total(store) == counted(store)
    assert total(store)[0] == 1
    assert verify(store).clean


def test_adjustments_belong_to_the_time_at_which_they_were_made(store: SqlStore) -> None:
    started(store)
    increments = Increments(surface_id=1, segment="", rounds=5, cells=(Cell(0, 1, 7, 2, 1),))
    store.adjust([Adjustment(increments=increments, at=NOON + HOUR, actor="ann", reason="warm start")], [])
    assert ranges_and_sums(store) == {(SECOND + 3600, SECOND + 3601): (5, [[0, 1, 7, 2, 1]])}
    assert verify(store).clean


@pytest.mark.slow
def test_a_deleted_segment_leaves_no_blocks(store: SqlStore) -> None:
    started(store)
    store.apply_feedback([settled(structs.replace(spread_event(1), segment="phone"), 1)], NOON)
    surface = store.surfaces()[0]
    store.delete_segments(
        1, {"phone": None}, lambda found: (surface_rules.reset_adjustments(surface, found, NOON + 1, "ann"), [])
    )
    assert store.blocks(1, "phone") == {}
    assert verify(store).clean


# Numbers of a segment


@pytest.mark.slow
def test_a_number_is_replaced_only_if_it_is_as_expected(store: SqlStore) -> None:
    started(store)
    store.apply_feedback([settled(spread_event(1), 1)], NOON)
    revision = store.segments(1)[0].revision
    assert store.set_number(1, "", "wake", 5, expected=None, audit=[{"action": "sleep"}])
    assert not store.set_number(1, "", "wake", 7, expected=None, audit=[{"action": "sleep again"}])
    assert store.set_number(1, "", "wake", 6, expected=5)
    assert store.numbers(1, "") == {"wake": 6}
    assert [entry["action"] for entry in store.audit(None, 9)] == ["sleep"]
    assert store.segments(1)[0].revision > revision  # other processes notice


@pytest.mark.slow
def test_blocks_are_not_merged_across_a_boundary(store: SqlStore) -> None:
    started(store)
    for number in range(1, 41):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON)
    boundary = second_of(spread_event(20).created_at)
    assert store.set_number(1, "", CHANGE, boundary, expected=None)
    assert store.boundaries(1, "") == (0, boundary)
    later = NOON + 100 * HOUR
    store.compact(1, "", later)
    ranges = ranges_and_sums(store)
    assert not any(start < boundary < until for start, until in ranges)
    assert sum(rounds for (start, _), (rounds, _) in ranges.items() if start >= boundary) == 21
    # Without the boundary, one block lies across it.
    assert enclosing_range(boundary, boundary + 1, second_of(later), (0,))[0] < boundary
    assert verify(store).clean


@pytest.mark.slow
def test_a_boundary_inside_a_block_is_refused(store: SqlStore) -> None:
    started(store)
    for number in range(1, 41):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON)
    store.compact(1, "", NOON + 100 * HOUR)
    start, until = max(ranges_and_sums(store), key=lambda one: one[1] - one[0])
    assert not store.set_number(1, "", CHANGE, (start + until) // 2, expected=None)
    assert store.numbers(1, "") == {}
    assert store.set_number(1, "", CHANGE, until, expected=None)


# Verification


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE blocks SET rounds = rounds + 1 WHERE start = (SELECT min(start) FROM blocks)",
        "UPDATE blocks SET cells = (SELECT cells FROM blocks ORDER BY start DESC LIMIT 1)",
        "UPDATE blocks SET start = start + 4096, until = until + 4096 WHERE start = (SELECT min(start) FROM blocks)",
        "DELETE FROM blocks WHERE start = (SELECT min(start) FROM blocks)",
    ],
)
def test_a_block_that_differs_from_the_log_is_reported(store: SqlStore, damage: str) -> None:
    started(store)
    for number in range(1, 41):
        store.apply_feedback([settled(spread_event(number), number % 8)], NOON)
    store.compact(1, "", NOON + 2 * HOUR)
    assert verify(store).clean
    assert verify(store).blocks == len(store.blocks(1, "")) > 3
    store.database.write(lambda session: session.run(damage))
    found = verify(store)
    assert not found.clean
    assert all(difference.block for difference in found.differences)
    assert "in the block of time" in str(found.differences[0])
