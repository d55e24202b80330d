"""The contract of a store, as checks that run on an empty one; test_contract.py has broken stores that must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bothworlds.serve.events import Event, Lease, Listed
from bothworlds.serve.model import LOSS_UNIT, bucket_of
from bothworlds.serve.outcomes import is_learned, page_squares
from bothworlds.serve.stores import LostLease, Snapshot, Store, VersionConflict

from .samples import LATE, LIMIT, NOON, WINDOW, a_surface, an_event, feedback_on, settle, started

DAY, YEAR = 86_400_000, 31_557_600_000
CHECKS: list[Callable[[Store], None]] = []


def check(function: Callable[[Store], None]) -> Callable[[Store], None]:
    CHECKS.append(function)
    return function


def found(store: Store, number: int) -> Event:
    id = an_event(number).id
    return store.find_events([id])[id]


def numbered(store: Store, surface_id: int = 1) -> dict[int, int]:
    """The numbers of settled events, by the number that fixes the event."""
    return {event.number or 0: int.from_bytes(event.id, "big") for event in store.settled(surface_id)}


def no_audit(_: object) -> list[dict[str, Any]]:
    return []


def an_imported(number: int, surface_id: int = 1, **changes: Any) -> Event:
    """An event as an import makes it."""
    return an_event(number, surface_id, **({"settled_at": NOON, "settled_by": "import"} | changes))


def a_lease(store: Store) -> Lease:
    lease = store.acquire("me", 60.0)
    assert lease is not None
    return lease


# Decisions and feedback


@check
def check_a_request_has_one_list(store: Store) -> None:
    started(store)
    first, other = an_event(2), an_event(2, listed=Listed((4, 3, 2), (0.5, 0.5, 0.5), 0b111))
    store.write([first, an_event(3), other], [], NOON)
    store.write([other, an_event(4)], [], NOON)
    assert store.find_events([first.id, an_event(3).id, bytes(16)]) == {first.id: first, an_event(3).id: an_event(3)}
    click = feedback_on(2, 1)
    assert store.write([], [replace(click, event=other), click], NOON) == ["rejected", "accepted"]
    assert found(store, 2) == replace(first, clicks=1, final=True)


@check
def check_feedback_stores_the_list_of_its_token_if_it_is_absent(store: Store) -> None:
    started(store)
    assert store.write([], [feedback_on(2, 0b101)], NOON) == ["accepted"]
    store.write([an_event(2, listed=Listed((4, 3, 2), (0.5, 0.5, 0.5), 0b111))], [], NOON)
    assert found(store, 2) == replace(an_event(2), clicks=0b101, final=True)
    assert store.write([an_event(4)], [feedback_on(4, 1)], NOON) == ["accepted"]  # both in one batch


@check
def check_feedback_of_a_batch_is_merged_in_order(store: Store) -> None:
    started(store)
    batch = [feedback_on(2, clicks, final=False) for clicks in (0b001, 0b001, 0b100)]
    batch += [feedback_on(2, shown=True, final=False), feedback_on(2), feedback_on(2, 0b101)]
    assert store.write([], batch, NOON) == ["accepted", "duplicate", "accepted", "accepted", "accepted", "duplicate"]
    assert found(store, 2) == replace(an_event(2), clicks=0b101, shown=True, final=True)
    assert store.open_events() == store.open_events(1) == 1


@check
def check_rewards_and_all_fields_of_an_event_are_kept(store: Store) -> None:
    started(store)
    event = an_event(8, visitor=b"v" * 16, counted=False, n=10**6)
    rewards = (0, 5, LOSS_UNIT)
    assert store.write([event], [replace(feedback_on(8), event=event, rewards=rewards)], NOON) == ["accepted"]
    (settled,) = settle(store)
    expected = replace(event, clicks=0b110, rewards=rewards, final=True, number=1, settled_at=NOON + 1)
    assert settled == found(store, 8) == replace(expected, settled_by="final")


@check
def check_expired_feedback_leaves_no_trace(store: Store) -> None:
    started(store)
    assert store.write([], [feedback_on(1, 1)], NOON + 1 + WINDOW + LATE + 1) == ["expired"]
    assert store.find_events([an_event(1).id]) == {}
    assert store.open_events() == 0


@check
def check_feedback_of_another_store_does_not_affect_its_batch(store: Store) -> None:
    started(store)
    foreign = feedback_on(2, surface_id=77)
    assert store.write([an_event(6, 77)], [feedback_on(1), foreign, feedback_on(3)], NOON) == [
        "accepted",
        "rejected",
        "accepted",
    ]
    assert store.find_events([foreign.event.id, an_event(6).id]) == {}


# Settling and numbers


@check
def check_events_are_numbered_in_the_order_of_creation_without_gaps(store: Store) -> None:
    started(store, "home", "other")
    store.write([], [feedback_on(k) for k in (9, 2, 5)] + [feedback_on(4, surface_id=2)], NOON)
    assert [(e.surface_id, e.number, e.created_at - NOON) for e in settle(store)] == [
        (1, 1, 2), (1, 2, 5), (1, 3, 9), (2, 1, 4),
    ]  # fmt: skip
    store.write([an_event(3), an_event(8)], [feedback_on(1), feedback_on(8)], NOON)
    assert [(e.number, e.created_at - NOON) for e in settle(store)] == [(4, 1), (5, 8)]
    assert [(e.number, e.settled_by) for e in settle(store, NOON + WINDOW + 4)] == [(6, "unconfirmed")]
    assert numbered(store) == {1: 2, 2: 5, 3: 9, 4: 1, 5: 8, 6: 3}
    assert store.last_numbers() == {1: 6, 2: 1}
    assert settle(store, NOON + YEAR) == []


@check
def check_final_feedback_is_learned_once_however_often_it_comes(store: Store) -> None:
    started(store)
    reports = [feedback_on(n, n % 8) for n in range(1, 20)]
    assert store.write([], reports, NOON) == ["accepted"] * 19
    once = settle(store)
    assert len(once) == 19
    assert set(store.write([], reports[::-1] * 2, NOON)) == {"duplicate"}
    store.write([report.event for report in reports], [], NOON)
    assert settle(store) == settle(store, NOON + YEAR) == []
    assert list(store.settled(1)) == once


@check
def check_a_settled_event_changes_only_by_late_clicks(store: Store) -> None:
    started(store)
    store.write([], [feedback_on(2, 0b001)], NOON)
    (before,) = settle(store)
    assert store.write([], [feedback_on(2, 0b011), feedback_on(2, 0b010)], NOON + LATE) == ["late_applied", "duplicate"]
    assert found(store, 2) == replace(before, late=0b010)
    assert store.write([], [feedback_on(2, 0b100)], before.late_until + 1) == ["expired"]
    (row,) = store.history(1, NOON, NOON + 60_000, 60_000)
    assert (row["clicks"], row["late"], row["squares"]) == (1, 1, 1)


@check
def check_an_event_settles_by_the_rules_of_its_surface(store: Store) -> None:
    started(store)
    given = [feedback_on(2), feedback_on(4, final=False, shown=True), feedback_on(6, 1, final=False)]
    store.write([an_event(8)], [*given, feedback_on(10, final=False, shown=False)], NOON)
    assert [e.settled_by for e in settle(store, early=False)] == ["void"]
    assert settle(store, NOON + WINDOW, early=False) == []
    assert [(e.created_at - NOON, e.settled_by) for e in settle(store, NOON + WINDOW + 9, early=False)] == [
        (2, "final"), (4, "deadline"), (6, "unconfirmed"), (8, "unconfirmed"),
    ]  # fmt: skip
    store.write([an_event(20)], [feedback_on(22, 1, final=False), feedback_on(24)], NOON)
    assert settle(store, mode="clicks") == []
    assert [e.settled_by for e in settle(store, NOON + WINDOW + 99, mode="clicks")] == ["deadline", "deadline", "final"]


@check
def check_a_surface_that_waits_does_not_hold_up_others(store: Store) -> None:
    started(store, "home", "other")
    store.write([], [feedback_on(k) for k in range(1, 9)] + [feedback_on(20, surface_id=2)], NOON)
    lease = a_lease(store)
    modes: Any = {1: "final", 2: "final"}
    settled = [e for _ in range(9) for e in store.settle(lease, NOON + 1, {1: False}, modes, 2)]
    assert [event.surface_id for event in settled] == [2]
    # Nor do those of a surface that the caller does not know yet.
    store.write([], [feedback_on(k) for k in range(31, 39)] + [feedback_on(40, surface_id=2)], NOON)
    settled = [e for _ in range(9) for e in store.settle(lease, NOON + 1, {}, {2: "final"}, 2)]
    assert [event.surface_id for event in settled] == [2]
    assert len(store.settle(lease, NOON + WINDOW + 99, {}, modes, LIMIT)) == 16


@check
def check_the_holdout_is_settled_and_never_learned(store: Store) -> None:
    started(store)
    learnable = replace(an_event(7).listed, learn=0b111)  # as a tampered import might say
    store.write([], [feedback_on(7, 1, listed=learnable), feedback_on(8, 1)], NOON)
    assert {event.arm: is_learned(event) for event in settle(store)} == {"holdout": False, "learner": True}


@check
def check_followers_read_what_was_settled_by_number(store: Store) -> None:
    started(store, "home", "other")
    store.write([], [feedback_on(k) for k in range(1, 30)] + [feedback_on(40, surface_id=2)], NOON)
    settled = [event for event in settle(store) if event.surface_id == 1]
    assert store.settled_after(1, 0, 10) == settled[:10]
    assert store.settled_after(1, 10, 100) == settled[10:]
    assert store.settled_after(1, 29, 100) == []
    of_phone = [event for event in settled if event.learner_id == 2]
    assert [e for batch in store.learner_events(2, 0, batch=4) for e in batch] == of_phone
    assert [e for batch in store.learner_events(2, 5, 11, batch=2) for e in batch] == [
        e for e in of_phone if 5 < (e.number or 0) <= 11
    ]
    assert [e.surface_id for e in store.settled()] == [1] * 29 + [2]


@check
def check_events_are_listed_by_surface_and_time(store: Store) -> None:
    started(store, "home", "other")
    store.write([an_event(n) for n in (5, 3, 4, 9)] + [an_event(6, surface_id=2)], [feedback_on(4)], NOON)
    assert len(settle(store)) == 1
    assert [event.created_at - NOON for event in store.events(1, NOON + 3, NOON + 9)] == [3, 4, 5]


# The lease


@check
def check_only_the_holder_of_the_lease_writes(store: Store) -> None:
    started(store)
    store.write([], [feedback_on(2)], NOON)
    first = store.acquire("first", 60.0)
    assert first is not None
    assert store.acquire("first", 60.0) == first
    if store.shared:
        assert store.acquire("second", 60.0) is None
    store.release(first)
    second = store.acquire("second", 60.0)
    assert second is not None
    assert second.fence > first.fence
    modes: Any = {1: "final"}
    for call in (
        lambda: store.settle(first, NOON + 1, {}, modes, LIMIT),
        lambda: store.erase(first, NOON, LIMIT),
        lambda: store.delete_old_events(first, 1, NOON, NOON, LIMIT, []),
        lambda: store.save_snapshot(first, 1, 1, "f", b""),
        lambda: store.drop_snapshots(first, 1),
    ):
        with pytest.raises(LostLease):
            call()
    store.release(first)  # changes nothing
    assert store.acquire("second", 60.0) == second
    assert (numbered(store), store.snapshot(1)) == ({}, None)
    assert len(store.settle(second, NOON + 1, {}, modes, LIMIT)) == 1


# Surfaces and learners


@check
def check_surfaces_come_back_as_they_were_saved(store: Store) -> None:
    first = store.save_surface(a_surface("home"), [{"action": "created"}])
    second = store.save_surface(a_surface("caf\u00e9 \u2603"), [])
    assert store.surfaces() == [first, second]
    assert len({0, first.id, second.id}) == 3
    assert store.audit(first.id, 10) == [{"action": "created", "surface_id": first.id, "id": 1}]


@check
def check_a_change_of_an_old_version_is_refused(store: Store) -> None:
    first = store.save_surface(a_surface(), [])
    changed = replace(first, version=2, name="main")
    assert store.save_surface(changed, []) == changed
    other = store.save_surface(a_surface("other"), [])
    for stale in (changed, replace(first, version=5), a_surface("main"), replace(other, version=2, name="main")):
        with pytest.raises(VersionConflict):
            store.save_surface(stale, [])
    with pytest.raises(VersionConflict):
        store.delete_surface(first, [])
    assert store.surfaces() == [changed, other]


@check
def check_the_revision_grows_with_every_change_of_surfaces_and_learners(store: Store) -> None:
    seen = [store.revision()]

    def changed() -> bool:
        seen.append(store.revision())
        return seen[-1] > seen[-2]

    surface = store.save_surface(a_surface(), [])
    assert changed()
    store.write([], [feedback_on(2)], NOON)
    settle(store)
    assert not changed()
    store.reset_learners([1], [])
    assert changed()
    store.delete_surface(surface, [])
    assert changed()


@check
def check_every_policy_of_a_surface_has_a_learner_for_ever(store: Store) -> None:
    started(store, "home", "other")
    assert [(one.id, one.surface_id, one.number) for one in store.learners()] == [
        (1, 1, 0), (2, 1, 1), (3, 2, 0), (4, 2, 1),
    ]  # fmt: skip
    home = store.surfaces()[0]
    without = replace(home, version=2, settings=replace(home.settings, arms=()))
    store.save_surface(without, [])
    store.save_surface(replace(home, version=3), [])
    assert [(one.id, one.number) for one in store.learners(1)] == [(1, 0), (2, 1)]
    store.delete_surface(store.surfaces()[1], [])
    assert store.save_surface(a_surface("new"), []).id == 3
    assert [one.id for one in store.learners()] == [1, 2, 5, 6]


@check
def check_a_reset_is_a_number(store: Store) -> None:
    started(store)
    store.write([], [feedback_on(k) for k in (2, 4, 3)], NOON)
    settle(store)
    lease = a_lease(store)
    store.save_snapshot(lease, 1, 3, "f", b"before")
    store.reset_learners([1], [{"action": "reset"}])
    assert [learner.reset_number for learner in store.learners(1)] == [3, 0]
    assert store.snapshot(1) is None
    store.save_snapshot(lease, 1, 3, "f", b"before, from a slow thread")
    assert store.snapshot(1) is store.snapshot(1, oldest=True) is None
    assert store.write([], [feedback_on(2, 1), feedback_on(6)], NOON) == ["late_applied", "accepted"]
    assert [event.number for event in settle(store)] == [4]
    store.save_snapshot(lease, 1, 4, "f", b"after")
    assert store.snapshot(1) == Snapshot(1, 4, "f", b"after")
    assert [entry["action"] for entry in store.audit(None, 10)] == ["reset"]


# Deletion


@check
def check_nothing_of_a_deleted_surface_comes_back(store: Store) -> None:
    started(store, "home", "other")
    store.write([an_event(5)], [feedback_on(k) for k in (1, 2)] + [feedback_on(8, surface_id=2)], NOON)
    settle(store)
    store.put("sample ratio 1", b"one")
    store.put("guard 1 5", b"one")
    store.put("guard 11 5", b"of another")
    home, other = store.surfaces()
    store.delete_surface(home, [{"action": "delete surface", "surface_id": 1}])
    assert store.surfaces() == [other]
    assert [learner.surface_id for learner in store.learners()] == [2, 2]
    store.write([an_event(k) for k in (1, 5, 10)], [], NOON)
    assert store.write([], [feedback_on(k, 1) for k in (1, 5, 12)], NOON) == ["rejected"] * 3
    assert [event.surface_id for event in store.settled()] == [2]
    assert (
        settle(store, NOON + YEAR) == list(store.events(1, 0, 2 * NOON)) == store.history(1, 0, 2 * NOON, 60_000) == []
    )
    assert (store.get("sample ratio 1"), store.get("guard 1 5"), store.get("guard 11 5")) == (None, None, b"of another")
    assert store.audit(1, 10)[0]["action"] == "delete surface"
    assert store.save_surface(a_surface("home"), []).id == 3  # the number of the deleted one is not given again
    assert (store.count_rows(["surfaces", "logs"]), store.count_rows(["events"])) == (4, 1)


@check
def check_a_deleted_event_never_comes_back(store: Store) -> None:
    started(store)
    ann = b"a" * 16
    decisions = [an_event(k, visitor=ann) for k in range(1, 9)]
    store.write(decisions, [replace(feedback_on(k, 1), event=decisions[k - 1]) for k in (1, 2)], NOON)
    settled = settle(store)
    ids = store.events_of_visitor(ann, 100)
    assert set(ids) == {event.id for event in decisions}
    assert store.delete_events([*ids, bytes(16)], lambda gone: [{"deleted": len(gone)}]) == 8
    for now in (NOON, NOON + WINDOW + 99):  # repeated requests and late feedback
        store.write(decisions, [], now)
        assert store.write([], [feedback_on(k, 7, visitor=ann) for k in range(1, 9)], now) == ["rejected"] * 8
        assert settle(store, now) == []
    assert store.find_events(ids) == {}
    assert list(store.settled()) == list(store.events(1, 0, 2 * NOON)) == []
    assert store.events_of_visitor(ann, 100) == []
    assert store.deleted_ids(ids) == set(ids)
    assert store.deleted(1).events == 8
    assert store.delete_events(ids, lambda gone: [{}]) == 0
    assert [entry["deleted"] for entry in store.audit(None, 10)] == [8]
    # The state keeps what was learned: the content stays until a snapshot covers it, without the visitor.
    kept = [replace(event, deleted=True, visitor=None) for event in settled]
    assert store.settled_after(1, 0, 100) == kept
    assert store.import_events([an_imported(k) for k in (1, 5)]) == 0


@check
def check_content_is_erased_once_every_snapshot_covers_it(store: Store) -> None:
    started(store)
    store.write([], [feedback_on(k) for k in range(1, 9)], NOON)
    settle(store)
    lease = a_lease(store)
    store.delete_events([an_event(k).id for k in (2, 3, 6)], no_audit)
    assert (store.erase(lease, NOON, LIMIT), store.uncovered()) == (0, {1: 6, 2: 3})
    store.save_snapshot(lease, 1, 4, "f", b"4")
    store.save_snapshot(lease, 1, 8, "f", b"8")
    assert (store.erase(lease, NOON, LIMIT), store.uncovered()) == (1, {1: 6, 2: 3})
    store.drop_snapshots(lease, 1, keep=1)
    assert (store.erase(lease, NOON, LIMIT), store.uncovered()) == (1, {2: 3})
    assert [event.number for batch in store.learner_events(1, 0) for event in batch] == [4, 8]
    store.reset_learners([2], [])
    assert (store.erase(lease, NOON, LIMIT), store.uncovered()) == (1, {})
    assert [learner.erased_number for learner in store.learners()] == [6, 3]
    assert store.deleted_ids([an_event(2).id, an_event(4).id]) == {an_event(2).id}
    # Tombstones go with their tokens.
    assert store.erase(lease, NOON + WINDOW + LATE + 99, LIMIT) == 3
    assert store.deleted_ids([an_event(2).id]) == set()
    assert list(numbered(store)) == [1, 4, 5, 7, 8]
    assert store.write([], [feedback_on(2, 1)], NOON) == ["expired"]  # by a clock that was set back


@check
def check_retention_deletes_what_no_replay_needs(store: Store) -> None:
    started(store)
    store.write(
        [], [feedback_on(k, created_at=NOON + k * DAY, late_until=NOON + (k + 1) * DAY) for k in range(1, 9)], NOON
    )
    settle(store)
    lease = a_lease(store)
    now = NOON + 20 * DAY
    store.save_snapshot(lease, 1, 6, "f", b"6")

    def deleted(before: int) -> int:
        return store.delete_old_events(lease, 1, NOON + before * DAY, now, LIMIT, [{"before": before}])

    assert store.uncovered(1, NOON + 8 * DAY, now) == {2: 7}
    assert store.delete_old_events(lease, 1, NOON + 9 * DAY, NOON + 3 * DAY, LIMIT, []) == 0  # late windows
    assert (deleted(4), deleted(4), deleted(9)) == (1, 0, 2)
    store.save_snapshot(lease, 2, 7, "f", b"7")
    assert deleted(9) == 4
    assert list(numbered(store)) == [8]
    assert (store.deleted(1).events, store.deleted(1).until, store.deleted(1).number) == (7, NOON + 7 * DAY, 7)
    assert [learner.erased_number for learner in store.learners()] == [6, 7]
    assert [entry["before"] for entry in store.audit(None, 10)] == [9, 9, 4]
    assert sum(row["settled"] for row in store.history(1, 0, 2 * NOON, 60_000)) == 8


@check
def check_a_clock_that_was_ahead_brings_no_event_back_and_loses_none(store: Store) -> None:
    started(store)
    lease, ahead = a_lease(store), NOON + 3 * DAY
    early = [feedback_on(k, 1) for k in (2, 4, 6)]
    store.write([], early, NOON)
    learned = settle(store, ahead)
    store.save_snapshot(lease, 1, 3, "f", b"3")
    assert store.delete_old_events(lease, 1, ahead - DAY, ahead, LIMIT, []) == 3
    later = [feedback_on(k, 1, created_at=NOON + 100, expires_at=NOON + 900) for k in (8, 10)]
    assert store.write([], early, NOON + 50) == ["expired"] * 3  # the clock is right again
    assert store.write([later[0].event], later, NOON + 100) == ["accepted"] * 2
    learned += settle(store, NOON + 101)
    assert [event.number for event in learned] == [1, 2, 3, 4, 5]
    assert store.write([], later, NOON + 101) == ["duplicate"] * 2


@check
def check_a_clock_an_hour_back_expires_nothing(store: Store) -> None:
    started(store)
    back, hour = NOON - 3_600_000, 3_600_000
    store.write([an_event(2)], [feedback_on(4)], NOON)
    assert [event.number for event in settle(store, NOON + 1)] == [1]
    store.reset_learners([1], [])
    store.delete_events([an_event(2).id], no_audit)
    earlier = {"created_at": back, "expires_at": back + WINDOW, "late_until": back + WINDOW + LATE}
    given = [feedback_on(6, 1, **earlier), feedback_on(8, 1), feedback_on(10, 1, final=False, shown=True)]
    assert store.write([], given, back) == ["accepted"] * 3
    assert [event.number for event in settle(store, back + 1)] == [2, 3]  # final pages, also that of the future
    assert store.learners()[0].reset_number == 1
    assert [event.number for event in settle(store, back + hour + WINDOW + 99)] == [4]


# Imports


@check
def check_imported_events_are_numbered_in_their_order_and_in_no_totals(store: Store) -> None:
    started(store)
    store.write([an_event(2)], [feedback_on(1)], NOON)
    settle(store)
    log = [an_imported(n, clicks=n % 8) for n in (9, 2, 4, 1, 3, 9)]
    assert store.import_events(log) == 3
    assert numbered(store) == {1: 1, 2: 9, 3: 4, 4: 3}
    assert store.import_events([an_imported(n) for n in range(1, 1200)]) == 1194
    assert list(numbered(store)) == list(range(1, 1199))
    assert found(store, 9) == replace(an_imported(9, clicks=1), number=2)
    assert store.open_events() == 1
    assert store.import_events([an_imported(5000, learner_id=99)]) == 0
    with pytest.raises(ValueError, match="not settled by import"):
        store.import_events([an_event(9999)])
    assert sum(row["settled"] for row in store.history(1, 0, 2 * NOON, 60_000)) == 1
    assert store.endings(1, 0, 2 * NOON) == (1, 0, 0, 0, 0, 0)


@check
def check_one_log_can_be_imported_into_several_surfaces_once_each(store: Store) -> None:
    started(store, "home", "other")
    for surface_id, new in ((2, 39), (1, 39), (2, 0), (1, 0)):
        log = [an_imported(n, surface_id) for n in range(1, 40)]
        assert store.import_events(log) == new
    for surface_id in (1, 2):
        assert [event.number for event in store.settled(surface_id)] == list(range(1, 40))


# Totals


@check
def check_totals_are_those_of_the_log(store: Store) -> None:
    started(store)
    ann, hour = b"a" * 16, 3_600_000
    given = [feedback_on(k, k % 8, visitor=ann if k % 2 else None) for k in range(1, 30)]
    given += [feedback_on(k, 1, final=False, shown=True) for k in range(60_000, 60_004)]
    given += [feedback_on(40, 1, final=False), feedback_on(41, final=False), feedback_on(42, shown=False, final=False)]
    given += [feedback_on(43, 1, counted=False), feedback_on(44, final=False, counted=False)]
    given += [feedback_on(hour + 1, rewards=(3, 0, LOSS_UNIT), visitor=ann)]
    store.write([an_event(50)], given, NOON)
    settle(store)
    settle(store, NOON + hour + WINDOW + 9)
    log = [e for e in store.settled() if e.counted and e.settled_by in ("final", "deadline")]
    assert len(log) == 34
    assert store.history(1, NOON, 2 * NOON, 60_000) == history_of(log, 60_000)
    assert store.history(1, NOON, NOON + 60_000, 3_600_000) == history_of(log[:29], 3_600_000)
    assert store.history(2, 0, 2 * NOON, 60_000) == []
    assert store.endings(1, NOON, 2 * NOON) == (34, 4, 3, 1, 1, 2)
    assert store.endings(1, NOON + 60_000, NOON + 60_009) == (4, 4, 0, 0, 0, 0)
    first = NOON - NOON % hour
    for segment in (None, "", "phone", "nobody"):
        expected: dict[str, dict[int, tuple[int, int, int]]] = {}
        for event in log:
            if event.visitor and segment in (None, event.segment):
                value, square = (sum(event.rewards), page_squares(event.rewards)) if event.rewards else (
                    event.clicks.bit_count(), event.clicks.bit_count() ** 2
                )  # fmt: skip
                sums = expected.setdefault(event.arm, {}).setdefault(bucket_of(ann), (0, 0, 0))
                expected[event.arm][bucket_of(ann)] = (sums[0] + 1, sums[1] + value, sums[2] + square)
        assert store.visitor_sums(1, segment, first, first + 2 * hour) == expected
    store.forget_visitor_sums(1, first + 2 * hour)
    assert store.visitor_sums(1, None, 0, 2 * NOON) == {}


def history_of(log: list[Event], step: int) -> list[dict[str, Any]]:
    """The history that a log gives; slow and simple."""
    rows: dict[tuple[int, str, str], dict[str, Any]] = {}
    for event in log:
        key = (event.created_at // step * step, event.segment, event.arm)
        empty = dict.fromkeys(("settled", "shows", "clicks", "clicked", "squares", "late"), 0)
        row = rows.setdefault(
            key, {"at": key[0], "segment": key[1], "arm": key[2], **empty, "rewards": 0, "reward_squares": 0}
        )
        clicks = event.clicks.bit_count()
        for name, value in (
            ("settled", 1), ("shows", 3), ("clicks", clicks), ("clicked", clicks > 0),
            ("squares", clicks**2), ("late", event.late.bit_count()), ("rewards", sum(event.rewards)),
            ("reward_squares", page_squares(event.rewards) if event.rewards else 0),
        ):  # fmt: skip
            row[name] += value
    return [rows[key] for key in sorted(rows)]


@check
def check_feedback_is_counted_by_arm_and_once_for_each_visitor(store: Store) -> None:
    started(store)
    ann, bob = b"a" * 16, b"b" * 16
    store.write(
        [an_event(n) for n in (7, 8, 9, 14)], [feedback_on(8), feedback_on(9, 1, final=False), feedback_on(14)], NOON
    )
    store.write([an_event(5, counted=False), an_event(6)], [], NOON)
    settle(store, NOON + WINDOW + 99)
    store.delete_events([an_event(6).id], no_audit)
    store.import_events([an_imported(21)])
    assert store.feedback_counts(1, NOON, NOON + 100, NOON) == {"learner": (2, 1), "holdout": (2, 1)}
    assert store.feedback_counts(1, NOON + 9, NOON + 14, NOON) == {"learner": (1, 0)}
    assert store.feedback_counts(2, NOON, NOON + 100, NOON) == {}
    visits = ((208, ann), (209, bob), (211, ann), (212, None))
    store.write([an_event(n, visitor=visitor) for n, visitor in visits], [], NOON)
    assert store.feedback_counts(1, NOON + 200, NOON + 300, NOON) == {"learner": (3, 0)}
    assert store.feedback_counts(1, NOON + 210, NOON + 300, NOON) == {"learner": (1, 0)}
    assert store.feedback_counts(1, NOON + 210, NOON + 300, NOON + 209) == {"learner": (2, 0)}


# Snapshots, policies, facts, keys, audit


@check
def check_snapshots_are_kept_by_number(store: Store) -> None:
    started(store)
    lease = a_lease(store)
    for number in (5, 9, 7):
        store.save_snapshot(lease, 1, number, "f1", b"%d" % number * 1000)
    store.save_snapshot(lease, 1, 9, "f2", b"nine")
    assert store.snapshot(1) == Snapshot(1, 9, "f2", b"nine")
    assert store.snapshot(2) is None
    assert store.snapshot(1, oldest=True) == Snapshot(1, 5, "f1", b"5" * 1000)
    store.drop_snapshots(lease, 1)
    assert store.snapshot(1, oldest=True) == Snapshot(1, 7, "f1", b"7" * 1000)


@check
def check_the_newest_policies_are_kept(store: Store) -> None:
    started(store)
    for k in range(1010):
        store.save_policy(f"p{k}", 1, NOON + k * 20_000, b"%d" % k)
    times = [at for at, _, _ in store.policies(1, 0, 0, 10_000)]
    assert times == [NOON + k * 20_000 for k in range(10, 1010)]
    few = store.policies(1, 0, NOON + 5_000_000, 10)
    assert len(few) == 10
    assert few[-1] == (NOON + 1009 * 20_000, "p1009", b"1009")
    assert store.policies(1, 1, 0, 10) == []


@check
def check_facts_are_kept_and_replaced_as_asked(store: Store) -> None:
    assert store.get("secret") is None
    assert store.put("secret", b"\x00\xff", only_if_absent=True) == b"\x00\xff"
    assert store.put("secret", b"other", only_if_absent=True) == b"\x00\xff"
    assert store.put("secret", b"one") == b"one"
    assert store.change("secret", lambda value: value + b" two") == b"one two" == store.get("secret")


@check
def check_keys_and_audit_are_kept(store: Store) -> None:
    store.save_key({"id": "k1", "roles": ["read"], "hash": b"\x01\x02"})
    store.save_key({"id": "k1", "roles": ["admin"], "hash": b"\x01\x02", "revoked_at": 5})
    assert store.keys() == [{"id": "k1", "roles": ["admin"], "hash": b"\x01\x02", "revoked_at": 5}]
    store.write_audit([{"at": k, "actor": "ann", "surface_id": k % 2} for k in range(5)])
    assert [entry["at"] for entry in store.audit(None, 3)] == [4, 3, 2]
    older = store.audit(1, 1, before=store.audit(1, 1)[0]["id"])
    assert [entry["at"] for entry in older] == [1]
