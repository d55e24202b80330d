"""The contract of a store, as checks that run on an empty one; test_contract.py has broken stores that must fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.model import (
    LOSS_UNIT,
    Adjustment,
    Cell,
    Eligibility,
    Event,
    Increments,
    Segment,
    VerifiedFeedback,
    counter_key,
)
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.rewards import page_squares, reward_clicks
from bothworlds.serve.settlement import increments_of
from bothworlds.serve.stores.base import Store, VersionConflict
from bothworlds.serve.time_blocks import merged
from bothworlds.serve.visitors import bucket_of

from .samples import LATE, NOON, WINDOW, a_surface, an_event, feedback_on

CHECKS: list[Callable[[Store], None]] = []


def check(function: Callable[[Store], None]) -> Callable[[Store], None]:
    CHECKS.append(function)
    return function


def counters(store: Store, surface_id: int = 1) -> dict[str, Any]:
    """Returns all counters without zeros and revisions."""
    return {
        segment.name: (
            segment.rounds,
            *({key: n for key, n in cells.items() if n} for cells in (segment.loss, segment.shown, segment.clicked)),
        )
        for segment in store.segments(surface_id)
    }


def counted(events: Sequence[Event]) -> dict[str, Any]:
    """Computes the counters after exactly these events have settled; slow and simple."""
    sums: dict[str, Any] = {}
    for event in events:
        increments = increments_of(event)
        if not increments.cells:
            continue
        rounds, *cells = sums.get(event.segment, (0, {}, {}, {}))
        for cell in increments.cells:
            for totals, amount in zip(cells, (cell.loss, cell.shown, cell.clicked), strict=True):
                totals[cell.item, cell.slot] = totals.get((cell.item, cell.slot), 0) + amount
        for slot in range(len(event.items)):
            if event.learn >> slot & 1 and not event.clicks >> slot & 1:
                for item in event.eligibility.absent:
                    cells[0][item, slot] = cells[0].get((item, slot), 0) + LOSS_UNIT
                for item in event.eligibility.present:
                    cells[0][item, slot] = cells[0].get((item, slot), 0) - LOSS_UNIT
        sums[event.segment] = (rounds + increments.rounds, *cells)
    return {
        segment: (rounds, *({key: n for key, n in totals.items() if n} for totals in cells))
        for segment, (rounds, *cells) in sums.items()
    }


def started(store: Store) -> Store:
    store.save_surface(a_surface(), [], [])
    return store


def clean(store: Store) -> bool:
    return verify(store).clean


@check
def check_facts_are_kept_and_only_if_absent_keeps_the_first(store: Store) -> None:
    assert store.get("secret") is None
    assert store.put("secret", b"\x00\xff", only_if_absent=True) == b"\x00\xff"
    assert store.put("secret", b"other", only_if_absent=True) == b"\x00\xff"
    assert store.put("secret", b"third") == b"third" == store.get("secret")


def deleted(store: Store, revisions: Mapping[str, int | None], at: int = NOON) -> set[str]:
    """Delete segments as the service does."""
    (surface,) = store.surfaces()

    def make(found: list[Segment]) -> Any:
        return surface_rules.reset_adjustments(surface, found, at, "ann"), [
            {"action": f"delete {one.name}"} for one in found
        ]

    return store.delete_segments(surface.id, revisions, make)


@check
def check_segments_are_admitted_up_to_the_limit(store: Store) -> None:
    started(store)
    before = store.revision()
    assert [store.admit_segment(1, name, 3) for name in ("", "a", "b", "c", "a", "")] == [True] * 3 + [False] + [
        True
    ] * 2
    assert store.segment_names(1) - {""} == {"a", "b"}
    assert {one.name for one in store.segments(1, before)} == {"a", "b"}  # other processes see them
    assert counters(store) == {"a": (0, {}, {}, {}), "b": (0, {}, {}, {})}
    assert clean(store)


@check
def check_processes_that_admit_at_once_keep_to_the_limit(store: Store) -> None:
    started(store)
    together, admitted = threading.Barrier(6), []

    def admit(name: str) -> None:
        together.wait(60)
        admitted.append(store.admit_segment(1, name, 4))

    threads = [threading.Thread(target=admit, args=(f"s{k}",)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(admitted) == [False] * 3 + [True] * 3
    assert len(store.segment_names(1)) == 3


@check
def check_a_deleted_segment_leaves_nothing_but_its_log(store: Store) -> None:
    started(store)
    store.apply_feedback([feedback_on(k, clicks=k % 8) for k in range(1, 9)], NOON + 50)
    kept = counters(store)[""]
    before = store.revision()
    assert deleted(store, {"phone": None, "nobody": None}, NOON + 60) == {"phone"}
    assert store.segment_names(1) == {""}
    assert counters(store) == {"": kept}
    assert store.revision() > before
    assert [entry["action"] for entry in store.audit(None, 10)] == ["delete phone"]
    assert clean(store)
    assert store.apply_feedback([feedback_on(3, clicks=7)], NOON + 70) == [
        "expired"
    ]  # there is no loss left to subtract
    assert counters(store) == {"": kept}
    assert deleted(store, {"phone": None}) == set()


@check
def check_a_segment_that_is_counted_in_meanwhile_is_not_deleted(store: Store) -> None:
    started(store)
    store.apply_feedback([feedback_on(1)], NOON + 50)
    (seen,) = store.segments(1)
    store.apply_feedback([feedback_on(3)], NOON + 50)
    kept = counters(store)
    assert deleted(store, {"phone": seen.revision}) == set()
    assert (counters(store), store.audit(None, 10)) == (kept, [])
    (seen,) = store.segments(1)
    assert deleted(store, {"phone": seen.revision}, NOON + 60) == {"phone"}


@check
def check_open_events_of_a_segment_can_be_settled_before_their_deadline(store: Store) -> None:
    started(store)
    store.save_events([an_event(k) for k in range(1, 9)])
    assert [store.settle_segment(1, "phone", NOON + 50, 3) for _ in range(3)] == [3, 1, 0]
    settled = {event.id: event for event in store.settled()}
    assert {event.segment for event in settled.values()} == {"phone"}
    assert store.open_events() == 4
    assert counters(store) == counted(list(settled.values()))
    assert store.settle_segment(1, "", NOON + 3, 10) == 1  # the others were decided later
    assert clean(store)


@check
def check_surfaces_come_back_as_they_were_saved(store: Store) -> None:
    first = store.save_surface(a_surface("home"), [], [{"action": "created"}])
    second = store.save_surface(a_surface("caf\u00e9 \u2603"), [], [])
    assert store.surfaces() == [first, second]
    assert len({0, first.id, second.id}) == 3
    assert store.audit(first.id, 10) == [{"action": "created", "surface_id": first.id, "id": 1}]


@check
def check_a_change_of_an_old_version_is_refused(store: Store) -> None:
    first = store.save_surface(a_surface(), [], [])
    changed = msgspec.structs.replace(first, version=2, name="main")
    assert store.save_surface(changed, [], []) == changed
    for stale in (changed, msgspec.structs.replace(first, version=5), a_surface("main")):
        with pytest.raises(VersionConflict):
            store.save_surface(stale, [], [])
    assert store.surfaces() == [changed]


@check
def check_final_feedback_is_counted_once_however_often_it_comes(store: Store) -> None:
    started(store)
    reports = [feedback_on(n, n % 8) for n in range(1, 20)]
    assert store.apply_feedback(reports, NOON) == ["accepted"] * 19
    once = counters(store)
    assert once == counted([msgspec.structs.replace(r.event, clicks=r.clicks) for r in reports])
    assert set(store.apply_feedback(reports[::-1], NOON)) <= {"duplicate", "settled"}
    assert set(store.apply_feedback([reports[0]] * 3, NOON)) == {"duplicate"}
    assert counters(store) == once
    assert clean(store)


@check
def check_feedback_on_one_event_in_a_batch_is_applied_in_order(store: Store) -> None:
    started(store)
    batch = [feedback_on(1, 0b001, False), feedback_on(1, 0b100), feedback_on(1, 0b100), feedback_on(1, 0b010)]
    assert store.apply_feedback(batch, NOON) == ["accepted", "accepted", "duplicate", "accepted"]
    event = store.find_events([an_event(1).id])[an_event(1).id]
    assert (event.clicks, event.late, event.settled_by, event.settled_at) == (0b111, 0, "final", NOON)
    assert counters(store) == counted([event])
    assert clean(store)


@check
def check_items_that_could_not_be_shown_are_charged_the_observed_loss(store: Store) -> None:
    started(store)
    for number, eligibility in enumerate((Eligibility(absent=(3, 4)), Eligibility(present=(0, 1, 2)))):
        event = an_event(2 + 2 * number, items=(0, 1, 2), p=(1.0, 0.5, 1.0), learn=0b011, eligibility=eligibility)
        before = store.segments(1)[0].loss if number else {}
        store.apply_feedback([VerifiedFeedback(event=event, clicks=0b001, final=True)], NOON)
        after = store.segments(1)[0].loss
        added = {
            key: (after[key] - before.get(key, 0)) // LOSS_UNIT for key in after if after[key] != before.get(key, 0)
        }
        charged = {(1, 1): 2, (3, 1): 1, (4, 1): 1} if eligibility.absent else {(1, 1): 1, (0, 1): -1, (2, 1): -1}
        assert added == charged
        assert store.find_events([event.id])[event.id].eligibility == eligibility
    late = VerifiedFeedback(event=event, clicks=0b010, final=False)
    assert store.apply_feedback([late], event.expires_at + 1) == ["late_applied"]
    assert all(store.segments(1)[0].loss.get(key, 0) == before.get(key, 0) for key in after)
    assert clean(store)


@check
def check_a_late_click_subtracts_exactly_its_loss(store: Store) -> None:
    started(store)
    event = an_event(1, learn=0b111, p=(0.3, 0.1, 0.7))
    silent, late = feedback_on(1), feedback_on(1, 0b010)
    silent.event = late.event = event
    store.apply_feedback([silent], NOON)
    assert store.apply_feedback([late], NOON + LATE) == ["late_applied"]
    assert counters(store) == counted([msgspec.structs.replace(event, clicks=0b010)])
    late.clicks = 0b001
    assert store.apply_feedback([late], event.late_until + 1) == ["expired"]
    assert counters(store) == counted([msgspec.structs.replace(event, clicks=0b010)])
    assert clean(store)


@check
def check_expired_feedback_leaves_no_trace(store: Store) -> None:
    started(store)
    before = store.revision()
    assert store.apply_feedback([feedback_on(1, 0b1)], NOON + WINDOW + LATE + 2) == ["expired"]
    assert store.find_events([an_event(1).id]) == {}
    assert (store.revision(), counters(store), store.history(1, 0, NOON * 2, 1)) == (before, {}, [])


@check
def check_rejected_feedback_does_not_affect_its_batch(store: Store) -> None:
    started(store)
    batch = [feedback_on(1), feedback_on(2, surface_id=77), feedback_on(3)]
    assert store.apply_feedback(batch, NOON) == ["accepted", "rejected", "accepted"]
    assert set(store.find_events([an_event(n).id for n in (1, 2, 3)])) == {an_event(1).id, an_event(3).id}


@check
def check_a_saved_decision_is_not_overwritten(store: Store) -> None:
    started(store)
    first, other = an_event(1), an_event(1, policy_id="later", items=(4, 3, 2))
    assert store.save_events([first, an_event(2), other]) == [first, an_event(2), first]
    assert store.save_events([other, an_event(3)]) == [first, an_event(3)]
    assert store.find_events([other.id, b"\x00" * 16]) == {first.id: first}
    assert store.open_events() == 3
    other_list = feedback_on(1)
    other_list.event = other
    store.apply_feedback([other_list], NOON)
    assert store.find_events([first.id])[first.id].items == first.items
    assert clean(store)


@check
def check_overdue_events_are_settled(store: Store) -> None:
    started(store)
    events = [an_event(n) for n in range(10)]
    store.save_events(events)
    store.apply_feedback([feedback_on(3, 0b1, final=False)], NOON)
    assert store.settle_overdue(NOON + WINDOW, 100) == 0
    assert store.settle_overdue(NOON + WINDOW + 5, 100) == 5
    assert store.settle_overdue(NOON + WINDOW + 100, 2) == 2
    assert store.settle_overdue(NOON + WINDOW + 100, 100) == 3
    assert store.open_events() == 0
    settled = list(store.settled())
    assert [event.clicks for event in settled if event.id == an_event(3).id] == [1]
    assert counters(store) == counted(settled)
    assert store.apply_feedback([feedback_on(3, 0b1)], NOON + WINDOW + 101) == ["duplicate"]
    assert clean(store)


@check
def check_clocks_that_jump_lose_nothing(store: Store) -> None:
    started(store)
    assert store.apply_feedback([feedback_on(1), feedback_on(2, 0b1, False)], NOON - 10**9) == ["accepted", "accepted"]
    assert store.settle_overdue(NOON + 10**9, 100) == 1
    assert store.apply_feedback([feedback_on(2, 0b10)], NOON + 10**9) == ["expired"]
    assert store.apply_feedback([feedback_on(2, 0b10), feedback_on(1)], NOON) == ["accepted", "duplicate"]
    assert store.settle_overdue(NOON - 10**9, 100) == 0
    assert clean(store)
    assert counters(store) == counted(list(store.settled()))


@check
def check_adjustments_are_counted_and_kept(store: Store) -> None:
    increments = Increments(surface_id=0, segment="", rounds=5, cells=(Cell(0, 1, 7 * LOSS_UNIT, 2, 1), Cell(4, 2, -3)))
    start = Adjustment(increments=increments, at=NOON, actor="ann", reason="warm start")
    surface = store.save_surface(a_surface(), [start], [])
    moved = msgspec.structs.replace(start, increments=msgspec.structs.replace(increments, surface_id=surface.id))
    assert counters(store) == {"": (5, {(0, 1): 7 * LOSS_UNIT, (4, 2): -3}, {(0, 1): 2}, {(0, 1): 1})}
    store.adjust([moved, moved], [{"surface_id": surface.id, "action": "adjusted", "actor": "ann"}])
    assert list(store.adjustments()) == [moved] * 3
    assert counters(store)[""][0] == 15
    assert clean(store)


@check
def check_the_revision_grows_with_every_change_and_finds_the_segment(store: Store) -> None:
    started(store)
    seen = [store.revision()]
    store.apply_feedback([feedback_on(2)], NOON)
    seen.append(store.revision())
    store.apply_feedback([feedback_on(3)], NOON)
    seen.append(store.revision())
    store.save_surface(msgspec.structs.replace(store.surfaces()[0], version=2), [], [])
    seen.append(store.revision())
    assert seen == sorted(set(seen))
    assert [segment.name for segment in store.segments(1, since=seen[1])] == ["phone"]
    assert [segment.name for segment in store.segments(1)] == ["", "phone"]
    store.apply_feedback([feedback_on(3)], NOON)
    assert store.revision() == seen[-1]


@check
def check_blocks_hold_the_counters_by_the_time_of_the_decision(store: Store) -> None:
    started(store)
    events = [an_event(number, created_at=NOON + 2500 * number, late_until=NOON + 10**9) for number in range(1, 9)]
    reports = [VerifiedFeedback(event=event, clicks=k % 8, final=True) for k, event in enumerate(events)]
    store.apply_feedback(reports, NOON + 9)
    late = VerifiedFeedback(event=events[2], clicks=0b111, final=True)
    store.apply_feedback([late], NOON + 10**6)
    clicks = [0b111 if k == 2 else k % 8 for k in range(8)]
    settled = [msgspec.structs.replace(event, clicks=seen) for event, seen in zip(events, clicks, strict=True)]
    for name in ("", "phone"):
        for block in store.blocks(1, name).values():
            assert block.until - block.start == 1
        ours = [event for event in settled if event.segment == name and event.learn]
        by_second = {event.created_at // 1000: counted([event]) for event in ours}
        assert {start for start, _, _ in store.blocks(1, name)} == by_second.keys()
        for second, expected in by_second.items():
            parts = [block for block in store.blocks(1, name).values() if block.start == second]
            sums = merged(0, 1, parts)
            assert sums.rounds == expected[name][0]
            assert {(i, j): loss for i, j, loss, _, _ in sums.cells.tolist() if loss} == expected[name][1]
    assert clean(store)


@check
def check_rewards_are_merged_counted_and_kept(store: Store) -> None:
    started(store)
    half, third = LOSS_UNIT // 2, LOSS_UNIT // 3

    def report(number: int, *rewards: int, final: bool = True) -> VerifiedFeedback:
        return VerifiedFeedback(event=an_event(number), clicks=0, final=final, rewards=rewards)

    first = [report(1, half, 0, third, final=False), report(2, 0, LOSS_UNIT, 0), report(14, third, third, third)]
    assert store.apply_feedback([*first, report(1, 0, third, half)], NOON) == ["accepted"] * 4
    assert store.apply_feedback([report(2, half, half, 0)], NOON + WINDOW + 5) == ["late_applied"]
    found = store.find_events([an_event(number).id for number in (1, 2, 14)])
    expected = {1: (half, third, half), 2: (half, LOSS_UNIT, 0), 14: (third,) * 3}
    for number, rewards in expected.items():
        event = found[an_event(number).id]
        assert event.rewards == rewards
        assert event.clicks == reward_clicks(event.id, rewards)
    assert found[an_event(2).id].late == 0b001
    learned = [event for event in found.values() if event.learn]
    sums: dict[tuple[str, int, int], list[int]] = {}
    for event in learned:
        for cell in increments_of(event).cells:
            totals = sums.setdefault((event.segment, cell.item, cell.slot), [0, 0])
            totals[0] += cell.shown
            totals[1] += cell.clicked
    for segment in store.segments(1):
        for (item, slot), shown in segment.shown.items():
            clicked = segment.clicked[item, slot]
            assert [shown, clicked] == sums.get((segment.name, item, slot), [0, 0])
    history = store.history(1, NOON, NOON + 60_000, 60_000)
    assert sum(row["rewards"] for row in history) == sum(map(sum, expected.values()))
    assert sum(row["reward_squares"] for row in history) == sum(map(page_squares, expected.values()))
    assert clean(store)


@check
def check_the_oldest_open_event_is_found(store: Store) -> None:
    started(store)
    assert store.oldest_open(1) is None
    store.save_events([an_event(number) for number in (5, 3, 8)])
    assert store.oldest_open(1) == NOON + 3
    assert store.oldest_open(2) is None
    store.apply_feedback([feedback_on(3)], NOON)
    assert store.oldest_open(1) == NOON + 5


@check
def check_events_are_listed_by_surface_and_time(store: Store) -> None:
    started(store)
    store.save_surface(a_surface("other"), [], [])
    store.save_events([an_event(n) for n in (5, 3, 4, 9)] + [an_event(6, surface_id=2)])
    store.apply_feedback([feedback_on(4), feedback_on(6, surface_id=2)], NOON)
    assert [event.created_at - NOON for event in store.events(1, NOON + 3, NOON + 9)] == [3, 4, 5]
    assert [event.id for event in store.settled(2)] == [an_event(6).id]
    assert len(list(store.settled())) == 2


@check
def check_one_log_can_be_imported_into_several_surfaces_once_each(store: Store) -> None:
    started(store)
    store.save_surface(a_surface("other"), [], [])
    ours = [an_event(n, settled_at=NOON, settled_by="import") for n in range(1, 40)]
    theirs = [msgspec.structs.replace(event, surface_id=2) for event in ours]
    for log, new in ((theirs, 39), (ours, 39), (theirs, 0), (ours, 0)):
        assert store.import_events(iter(log)) == new
    for id in (1, 2):
        events = list(store.settled(id))
        assert (len(events), counters(store, id)) == (39, counted(events))
    assert clean(store)


@check
def check_imported_events_are_counted_unless_they_are_there(store: Store) -> None:
    started(store)
    store.apply_feedback([feedback_on(1)], NOON)
    store.save_events([an_event(2)])
    log = [an_event(n, clicks=n % 8, settled_at=NOON, settled_by="import") for n in range(1, 1500)]
    assert store.import_events(iter(log)) == 1497
    assert store.import_events(iter(log)) == 0
    with pytest.raises(ValueError, match="not settled"):
        store.import_events([an_event(9999)])
    assert counters(store) == counted(list(store.settled()))
    assert clean(store)


@check
def check_history_counts_outcomes_by_minute(store: Store) -> None:
    started(store)
    store.save_events([an_event(n) for n in (7, 8)])
    store.apply_feedback([feedback_on(8, 0b101), feedback_on(7, 0b1, False), feedback_on(10)], NOON)
    store.apply_feedback([feedback_on(10, 0b10), feedback_on(60_000)], an_event(10).expires_at + 1)
    rows = store.history(1, NOON, NOON + 120_000, 60_000)
    names = ("events", "settled", "shows", "clicks", "clicked", "squares", "late")
    found = {(r["at"] - NOON, r["segment"], r["arm"]): tuple(r[name] for name in names) for r in rows}
    assert found == {
        (0, "phone", "holdout"): (1, 0, 0, 0, 0, 0, 0),
        (0, "", "learner"): (2, 2, 6, 3, 2, 5, 1),
        (60_000, "", "learner"): (1, 1, 3, 0, 0, 0, 0),
    }
    hours = store.history(1, NOON, NOON + 120_000, 3_600_000)
    assert sum(row["events"] for row in hours) == 4
    assert {row["at"] % 3_600_000 for row in hours} == {0}


@check
def check_feedback_is_counted_by_arm(store: Store) -> None:
    started(store)
    store.save_events([an_event(n) for n in (7, 8, 9, 14)])
    store.apply_feedback([feedback_on(8, 0b101), feedback_on(9, 0b1, False), feedback_on(14)], NOON)
    store.settle_overdue(NOON + WINDOW + 1000, 100)
    store.import_events([an_event(21, settled_at=NOON, settled_by="import")])
    assert store.feedback_counts(1, NOON, NOON + 100, NOON) == {"learner": (2, 1), "holdout": (2, 1)}
    assert store.feedback_counts(1, NOON + 9, NOON + 14, NOON) == {"learner": (1, 0)}
    assert store.feedback_counts(2, NOON, NOON + 100, NOON) == {}


@check
def check_of_a_visitor_only_the_first_page_is_counted_by_arm(store: Store) -> None:
    started(store)
    ann, bob = b"a" * 16, b"b" * 16
    store.save_events([an_event(n, visitor=visitor) for n, visitor in ((8, ann), (9, bob), (10, ann), (11, None))])
    assert store.feedback_counts(1, NOON, NOON + 100, NOON) == {"learner": (3, 0)}
    assert store.feedback_counts(1, NOON + 10, NOON + 100, NOON) == {"learner": (1, 0)}
    assert store.feedback_counts(1, NOON + 10, NOON + 100, NOON + 9) == {"learner": (2, 0)}


@check
def check_pages_of_visitors_are_counted_by_bucket(store: Store) -> None:
    started(store)
    ann, hour = b"a" * 16, 3_600_000
    known = {n: an_event(n, visitor=ann, segment="", arm="learner", learn=1) for n in (1, 2)}
    later = an_event(3, visitor=ann, segment="", arm="new", learner=2, learn=1, created_at=NOON + hour)
    store.save_events([*known.values(), later, an_event(4, segment="")])
    given = [VerifiedFeedback(event=event, clicks=0b11, final=True) for event in (*known.values(), later, an_event(4))]
    store.apply_feedback(given, NOON)
    store.apply_feedback([VerifiedFeedback(event=known[1], clicks=0b100, final=True)], NOON + 5)  # a third click
    first = NOON - NOON % hour
    bucket = bucket_of(ann)
    assert store.visitor_sums(1, None, first, first + 1) == {"learner": {bucket: (2, 5, 13)}}
    assert store.visitor_sums(1, "", first, first + 2 * hour) == {
        "learner": {bucket: (2, 5, 13)},
        "new": {bucket: (1, 2, 4)},
    }
    assert store.visitor_sums(1, "phone", first, first + 2 * hour) == store.visitor_sums(2, None, 0, NOON) == {}
    assert store.segment_names(1) >= {"", counter_key("", 2)}
    (of_arm,) = [one for one in store.segments(1) if one.name == counter_key("", 2)]
    assert of_arm.rounds == 1
    assert store.find_events([later.id])[later.id].visitor == ann


@check
def check_keys_and_audit_are_kept(store: Store) -> None:
    store.save_key({"id": "k1", "roles": ["read"], "hash": b"\x01\x02"})
    store.save_key({"id": "k1", "roles": ["admin"], "hash": b"\x01\x02", "revoked_at": 5})
    assert store.keys() == [{"id": "k1", "roles": ["admin"], "hash": b"\x01\x02", "revoked_at": 5}]
    store.write_audit([{"at": k, "actor": "ann", "surface_id": k % 2} for k in range(5)])
    assert [entry["at"] for entry in store.audit(None, 3)] == [4, 3, 2]
    older = store.audit(1, 1, before=store.audit(1, 1)[0]["id"])
    assert [entry["at"] for entry in older] == [1]


@check
def check_policies_are_kept_and_thinned(store: Store) -> None:
    started(store)
    for k in range(400):
        store.save_policy(f"p{k}", 1, "", NOON + k * 20_000, b"%d" % k)
    assert store.policy("p399") == b"399"
    assert store.policy("unknown") is None
    times = [at for at, _, _ in store.policies(1, "", 0, 10_000)]
    assert times[-200:] == [NOON + k * 20_000 for k in range(200, 400)]
    assert len(times) - 200 <= 2 + 3  # hours that have begun, and what a minute has added
    few = store.policies(1, "", NOON + 5_000_000, 10)
    assert len(few) == 10
    assert few[-1] == (NOON + 399 * 20_000, "p399", b"399")
    assert store.policies(1, "phone", 0, 10) == []
    for day in range(1, 100):
        for k in range(10):
            store.save_policy(f"d{day}-{k}", 1, "", NOON + day * 86_400_000 + k * 60_000, b"")
    later = [at for at, _, _ in store.policies(1, "", 0, 10_000)]
    assert len(later) <= 200 + 100 + 10
    assert {at // 86_400_000 for at in later} == {NOON // 86_400_000 + day for day in range(100)}


@check
def check_clicks_on_another_list_than_the_stored_one_are_rejected(store: Store) -> None:
    started(store)
    stored = an_event(1, learn=0b111)
    store.save_events([stored])
    for lost in (
        an_event(1, learn=0b111, items=stored.items[::-1]),
        an_event(1, learn=0b111, p=(0.5, *stored.p[1:])),
        an_event(1, learn=0, arm="holdout"),
    ):
        report = feedback_on(1, 0b001)
        report.event = lost
        assert store.apply_feedback([report], NOON) == ["rejected"]
    assert store.find_events([stored.id]) == {stored.id: stored}
    assert counters(store) == counted([])
    assert clean(store)


def a_reset(store: Store, segment: str, at: int) -> None:
    (known,) = [one for one in store.segments(1) if one.name == segment]
    store.adjust(surface_rules.reset_adjustments(store.surfaces()[0], [known], at, "ann"), [])


@check
def check_a_late_click_after_a_reset_changes_nothing(store: Store) -> None:
    started(store)
    reports = {number: feedback_on(number) for number in (2, 3, 4)}
    for number, report in reports.items():
        report.event = an_event(number, learn=0b111)
    store.apply_feedback([reports[2], reports[3]], NOON)
    a_reset(store, "", NOON + 1)
    store.apply_feedback([reports[4]], NOON + 2)
    for report in reports.values():
        report.clicks = 0b010
    before = store.find_events([reports[2].event.id])
    assert store.apply_feedback(list(reports.values()), NOON + 3) == ["expired", "accepted", "accepted"]
    assert store.find_events([reports[2].event.id]) == before
    clicked = [msgspec.structs.replace(reports[number].event, clicks=0b010) for number in (3, 4)]
    assert counters(store) == counted(clicked)
    assert min(store.segments(1)[0].loss.values()) >= 0
    assert clean(store)


@check
def check_a_reset_covers_events_settled_by_a_clock_that_was_ahead(store: Store) -> None:
    started(store)
    early, late = feedback_on(2), feedback_on(4)
    early.event, late.event = an_event(2, learn=0b111), an_event(4, learn=0b111)
    store.apply_feedback([early], NOON + 500)
    surface = store.surfaces()[0]
    store.adjust_by(1, lambda found: surface_rules.reset_adjustments(surface, found, NOON, "ann"), [])
    store.apply_feedback([late], NOON + 501)
    early.clicks = late.clicks = 0b010
    assert store.apply_feedback([early, late], NOON + 502) == ["expired", "accepted"]
    assert counters(store) == counted([msgspec.structs.replace(late.event, clicks=0b010)])
    assert clean(store)


@check
def check_a_fact_is_replaced_only_if_it_is_as_expected(store: Store) -> None:
    store.put("secret", b"one")
    assert store.put("secret", b"two", expected=b"other") == b"one"
    assert store.put("secret", b"two", expected=b"one") == b"two" == store.get("secret")
    assert store.put("absent", b"two", expected=b"one") == b""
    assert store.get("absent") is None


@check
def check_concurrent_resets_subtract_the_counters_once(store: Store) -> None:
    started(store)
    store.apply_feedback([feedback_on(number) for number in range(1, 40)], NOON)

    def reset() -> None:
        store.adjust_by(
            1, lambda found: surface_rules.reset_adjustments(store_surface, found, NOON, "ann"), [{"action": "reset"}]
        )

    store_surface = store.surfaces()[0]
    resets = [threading.Thread(target=reset) for _ in range(4)]
    for thread in resets:
        thread.start()
    for thread in resets:
        thread.join()
    assert counters(store) == {"": (0, {}, {}, {}), "phone": (0, {}, {}, {})}
    assert clean(store)


@check
def check_an_event_that_is_stored_is_never_claimed_to_be_absent(store: Store) -> None:
    started(store)
    ids = []
    for k in range(0, 30, 3):
        saved, reported, imported = (
            an_event(n, id=blake2b(b"%d" % n, digest_size=16).digest()) for n in range(k, k + 3)
        )
        store.save_events([saved])
        store.apply_feedback([VerifiedFeedback(event=reported, clicks=0, final=True)], NOON + 50)
        store.import_events([msgspec.structs.replace(imported, settled_at=NOON + 50, settled_by="import")])
        ids += [saved.id, reported.id, imported.id]
        assert all(map(store.may_have_event, ids))
    assert store.find_events(ids).keys() == set(ids)
