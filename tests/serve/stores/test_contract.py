"""Both databases pass the contract, and deliberately broken stores fail it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bothworlds.serve.events import Event, Feedback, Lease
from bothworlds.serve.model import Status, Surface
from bothworlds.serve.stores import Store, deletion, events, learners
from bothworlds.serve.stores.database import SqliteDatabase
from tests.serve.conftest import on_both

from . import contract


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_a_store_keeps_the_contract(check: Callable[[Store], None], store: Store) -> None:
    check(store)


def sql(store: Store, statement: str, *values: object) -> None:
    store.database.write(lambda session: session.run(statement, values))


class OverwritesDecisions(Store):
    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        for event in decisions:
            sql(self, "DELETE FROM events WHERE id = ?", event.id)
        return super().write(decisions, feedback, now)


class TakesClicksOnAnyList(Store):
    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        stored = self.find_events([given.event.id for given in feedback])
        known = [replace(given, event=stored.get(given.event.id, given.event)) for given in feedback]
        return super().write(decisions, known, now)


class LosesTheLastReport(Store):
    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        statuses = super().write(decisions, feedback[:-1], now)
        return [*statuses, "accepted"] if feedback else statuses


class StoresWhatHasExpired(Store):
    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        return super().write([*decisions, *(given.event for given in feedback)], feedback, now)


class SettlesTooEarly(Store):
    def settle(self, lease: Lease, now: int, *others: Any) -> list[Event]:
        return super().settle(lease, now + 10_000, *others)


class LeavesGaps(Store):
    def settle(self, *args: Any) -> list[Event]:
        settled = super().settle(*args)
        sql(self, "UPDATE logs SET last_number = last_number + 1")
        return settled


class LearnsLateClicks(Store):
    def write(self, decisions: Sequence[Event], feedback: Sequence[Feedback], now: int) -> list[Status]:
        statuses = super().write(decisions, feedback, now)
        sql(self, "UPDATE events SET clicks = clicks | late")
        return statuses


class IgnoresTheLease(Store):
    def _write_leased(self, lease: Lease, work: Any, *, durable: bool = True) -> Any:
        return self.database.write(work, durable=durable)


class TakesAnyVersion(Store):
    def save_surface(self, surface: Surface, audit: Any) -> Surface:
        sql(self, "UPDATE surfaces SET version = ? WHERE id = ?", surface.version - 1, surface.id)
        return super().save_surface(surface, audit)


class UsesNumbersOfLearnersAgain(Store):
    def delete_surface(self, *args: Any) -> None:
        super().delete_surface(*args)
        sql(self, "UPDATE numbers SET value = value - 1 WHERE name = 'learner'")


class LosesTheContext(Store):
    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        return {id: replace(event, context={}) for id, event in super().find_events(ids).items()}


class ForgetsWhatWasDeleted(Store):
    def delete_events(self, ids: Sequence[bytes], audit: Any) -> int:
        count = super().delete_events(ids, audit)
        sql(self, "DELETE FROM events WHERE deleted AND number IS NULL")
        return count


class ResetsByTheClock(Store):
    def reset_learners(self, ids: Any, audit: Any) -> None:
        super().reset_learners(ids, audit)
        sql(self, "UPDATE learners SET reset_number = 0")


class CountsEveryVisit(Store):
    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        return super().feedback_counts(surface_id, since, until, until)


class ReplacesAnyFact(Store):
    def put(self, key: str, value: bytes, *, only_if_absent: bool = False) -> bytes:
        return super().put(key, value)


BROKEN = {
    OverwritesDecisions: contract.check_a_request_has_one_list,
    TakesClicksOnAnyList: contract.check_a_request_has_one_list,
    LosesTheLastReport: contract.check_feedback_of_a_batch_is_merged_in_order,
    StoresWhatHasExpired: contract.check_expired_feedback_leaves_no_trace,
    SettlesTooEarly: contract.check_an_event_settles_by_the_rules_of_its_surface,
    LeavesGaps: contract.check_events_are_numbered_in_the_order_of_creation_without_gaps,
    LearnsLateClicks: contract.check_a_settled_event_changes_only_by_late_clicks,
    IgnoresTheLease: contract.check_only_the_holder_of_the_lease_writes,
    TakesAnyVersion: contract.check_a_change_of_an_old_version_is_refused,
    UsesNumbersOfLearnersAgain: contract.check_every_policy_of_a_surface_has_a_learner_for_ever,
    LosesTheContext: contract.check_a_request_has_one_list,
    ForgetsWhatWasDeleted: contract.check_a_deleted_event_never_comes_back,
    ResetsByTheClock: contract.check_a_reset_is_a_number,
    CountsEveryVisit: contract.check_feedback_is_counted_by_arm_and_once_for_each_visitor,
    ReplacesAnyFact: contract.check_facts_are_kept_and_replaced_as_asked,
}

# A rule that is replaced, by what, and the check that notices it.
REPLACED: dict[str, tuple[Any, str, Any, Callable[[Store], None]]] = {
    "erases what a replay needs": (
        deletion, "COVERED", "TRUE", contract.check_content_is_erased_once_every_snapshot_covers_it
    ),
    "deletes what a replay needs": (deletion, "COVERED", "TRUE", contract.check_retention_deletes_what_no_replay_needs),
    "believes its clock about old tokens": (
        events, "_not_closed", lambda session, absent: absent,
        contract.check_a_clock_that_was_ahead_brings_no_event_back_and_loses_none,
    ),
    "believes its clock about final pages": (
        events, "due_at", lambda event: event.created_at, contract.check_a_clock_an_hour_back_expires_nothing
    ),
    "compares all events": (events, "is_compared", lambda event: True, contract.check_totals_are_those_of_the_log),
    "imports an id once": (
        events, "imported_id", lambda surface_id, name: bytes.fromhex(name),
        contract.check_one_log_can_be_imported_into_several_surfaces_once_each,
    ),
    "numbers in another order": (
        events, "attrgetter", lambda *names: lambda event: -event.created_at,
        contract.check_events_are_numbered_in_the_order_of_creation_without_gaps,
    ),
    "deletes facts of other surfaces": (
        learners, "FACTS", ("sample ratio", "guard 1%"), contract.check_nothing_of_a_deleted_surface_comes_back
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", BROKEN, ids=lambda twin: twin.__name__)
def test_a_broken_store_is_caught(twin: type[Store], tmp_path: Path) -> None:
    broken = twin(SqliteDatabase(tmp_path / "broken.db"))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        BROKEN[twin](broken)
    broken.close()


@pytest.mark.parametrize("fault", REPLACED)
def test_a_store_with_a_broken_rule_is_caught(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, replacement, check = REPLACED[fault]
    broken = Store(SqliteDatabase(tmp_path / "broken.db"))
    monkeypatch.setattr(module, name, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(broken)
    broken.close()
