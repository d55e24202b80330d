"""Both stores pass the contract, and deliberately broken stores fail it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bothworlds.serve.model import ALL_ELIGIBLE, Adjustment, Event, Status, Surface, VerifiedFeedback
from bothworlds.serve.settlement import increments_of
from bothworlds.serve.stores.base import Store
from bothworlds.serve.stores.batch_totals import BatchTotals
from bothworlds.serve.stores.sql_events import update_events
from bothworlds.serve.stores.sql_store import SqlStore
from bothworlds.serve.stores.sql_surfaces import add_counters
from bothworlds.serve.stores.sqlite import SqliteDatabase

from . import contract
from .conftest import on_both


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_a_store_keeps_the_contract(check: Callable[[Store], None], store: SqlStore) -> None:
    check(store)


class CountsDuplicates(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        statuses = super().apply_feedback(feedback, now)
        additions = BatchTotals()
        for report, status in zip(feedback, statuses, strict=True):
            additions.add(increments_of(report.event) if status == "duplicate" else None)
        self.database.write(lambda session: add_counters(session, additions))
        return statuses


class LosesTheLastReport(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        return [*super().apply_feedback(feedback[:-1], now), "accepted"]


class StoresWhatHasExpired(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        self.save_events([report.event for report in feedback if report.event.surface_id == 1])
        return super().apply_feedback(feedback, now)


class ForgetsDecisions(SqlStore):
    def save_events(self, events: Sequence[Event]) -> list[Event]:
        super().save_events(events)
        return list(events)


class SettlesTooEarly(SqlStore):
    def settle_overdue(self, now: int, limit: int) -> int:
        return super().settle_overdue(now + 10_000, limit)


class TakesAnyVersion(SqlStore):
    def save_surface(self, surface: Surface, adjustments: object, audit: object) -> Surface:  # type: ignore[override]
        if surface.id:
            self.database.write(
                lambda session: session.run(
                    "UPDATE surfaces SET version = ? WHERE id = ?", (surface.version - 1, surface.id)
                )
            )
        return super().save_surface(surface, adjustments, audit)  # type: ignore[arg-type]


class TakesClicksOnAnyList(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        stored = self.find_events([report.event.id for report in feedback])
        return super().apply_feedback(
            [structs.replace(report, event=stored.get(report.event.id, report.event)) for report in feedback], now
        )


class ForgetsResets(SqlStore):
    def adjust(self, adjustments: Sequence[Adjustment], audit: object) -> None:  # type: ignore[override]
        super().adjust([structs.replace(one, reason="other") for one in adjustments], [])


class LooksBeforeItLocks(SqlStore):
    all_have_looked = threading.Barrier(4)

    def adjust_by(self, surface_id: int, make: Any, audit: object) -> None:  # type: ignore[override]
        adjustments = make(self.segments(surface_id))
        self.all_have_looked.wait(60)
        self.adjust(adjustments, [])


class BelievesItsClock(SqlStore):
    def adjust_by(self, surface_id: int, make: Any, audit: object) -> None:  # type: ignore[override]
        self.adjust(make(self.segments(surface_id)), [])


class ChargesNobodyForAbsence(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        present = [structs.replace(r, event=structs.replace(r.event, eligibility=ALL_ELIGIBLE)) for r in feedback]
        return super().apply_feedback(present, now)


class ReplacesAnyFact(SqlStore):
    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        return super().put(key, value, only_if_absent=only_if_absent)


class AdmitsWithoutALimit(SqlStore):
    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool:
        return super().admit_segment(surface_id, segment, limit + 1)


class KeepsRowsOfZeros(SqlStore):
    def delete_segments(self, surface_id: int, revisions: Any, make: Any) -> set[str]:
        self.adjust_by(surface_id, lambda segments: make([s for s in segments if s.name in revisions])[0], [])
        return set(revisions)


class DeletesWhatWasJustLearned(SqlStore):
    def delete_segments(self, surface_id: int, revisions: Any, make: Any) -> set[str]:
        return super().delete_segments(surface_id, dict.fromkeys(revisions), make)


class SettlesEverySegment(SqlStore):
    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int:
        return sum(super(SettlesEverySegment, self).settle_segment(surface_id, s, now, limit) for s in ("", "phone"))


class DatesBlocksBySettlement(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        late = [structs.replace(r, event=structs.replace(r.event, created_at=now)) for r in feedback]
        return super().apply_feedback(late, now)


class KeepsTheLastReward(SqlStore):
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        stored = self.find_events([report.event.id for report in feedback])
        self.database.write(
            lambda session: update_events(session, [structs.replace(e, rewards=()) for e in stored.values()])
        )
        return super().apply_feedback(feedback, now)


class ForgetsOpenEvents(SqlStore):
    def oldest_open(self, surface_id: int) -> int | None:
        return None


class ClaimsThatStoredEventsAreAbsent(SqlStore):
    def may_have_event(self, id: bytes) -> bool:
        return id[0] > 100 and super().may_have_event(id)


BROKEN = {
    ClaimsThatStoredEventsAreAbsent: contract.check_an_event_that_is_stored_is_never_claimed_to_be_absent,
    DatesBlocksBySettlement: contract.check_blocks_hold_the_counters_by_the_time_of_the_decision,
    KeepsTheLastReward: contract.check_rewards_are_merged_counted_and_kept,
    ForgetsOpenEvents: contract.check_the_oldest_open_event_is_found,
    ChargesNobodyForAbsence: contract.check_items_that_could_not_be_shown_are_charged_the_observed_loss,
    AdmitsWithoutALimit: contract.check_segments_are_admitted_up_to_the_limit,
    KeepsRowsOfZeros: contract.check_a_deleted_segment_leaves_nothing_but_its_log,
    DeletesWhatWasJustLearned: contract.check_a_segment_that_is_counted_in_meanwhile_is_not_deleted,
    SettlesEverySegment: contract.check_open_events_of_a_segment_can_be_settled_before_their_deadline,
    CountsDuplicates: contract.check_final_feedback_is_counted_once_however_often_it_comes,
    LosesTheLastReport: contract.check_feedback_on_one_event_in_a_batch_is_applied_in_order,
    StoresWhatHasExpired: contract.check_expired_feedback_leaves_no_trace,
    ForgetsDecisions: contract.check_a_saved_decision_is_not_overwritten,
    SettlesTooEarly: contract.check_overdue_events_are_settled,
    TakesClicksOnAnyList: contract.check_clicks_on_another_list_than_the_stored_one_are_rejected,
    ForgetsResets: contract.check_a_late_click_after_a_reset_changes_nothing,
    LooksBeforeItLocks: contract.check_concurrent_resets_subtract_the_counters_once,
    BelievesItsClock: contract.check_a_reset_covers_events_settled_by_a_clock_that_was_ahead,
    ReplacesAnyFact: contract.check_a_fact_is_replaced_only_if_it_is_as_expected,
    TakesAnyVersion: contract.check_a_change_of_an_old_version_is_refused,
}


@pytest.mark.parametrize("twin", BROKEN, ids=lambda twin: twin.__name__)
def test_a_broken_store_is_caught(twin: type[SqlStore], tmp_path: Path) -> None:
    broken = twin(SqliteDatabase(tmp_path / "broken.db"))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        BROKEN[twin](broken)
    broken.close()
