"""Any order, duplication, batching and splitting of feedback gives the same counters."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from bothworlds.serve.model import Event, VerifiedFeedback
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.settlement import apply_clicks, settle_at_deadline
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import SqlStore
from tests.serve.postgres_server import PostgresServer

from .contract import counted, counters
from .samples import NOON, WINDOW, a_surface, an_event, feedback_on

NUMBERS = st.integers(1, 8)
REPORTS = st.lists(st.builds(feedback_on, NUMBERS, st.integers(0, 7), st.booleans()), min_size=1, max_size=12)
_files = itertools.count()


@contextmanager
def fresh_store(database: str, folder: Path, postgres: PostgresServer | None) -> Iterator[tuple[SqlStore, str]]:
    place = postgres.fresh_address() if postgres else str(folder / f"{next(_files)}.db")
    store = open_store(place)
    store.save_surface(a_surface(), [], [])
    yield store, place
    store.close()


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=REPORTS, data=st.data())
def test_shuffled_duplicated_and_split_feedback_gives_the_same_counters(
    reports: list[VerifiedFeedback], data: st.DataObject, tmp_path: Path
) -> None:
    finals = [feedback_on(number) for number in range(1, 9)]
    doubled = data.draw(st.permutations(reports + data.draw(st.lists(st.sampled_from(reports))) + finals))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(doubled)), max_size=4)))
    with fresh_store("sqlite", tmp_path, None) as (one, _), fresh_store("sqlite", tmp_path, None) as (other, _):
        one.apply_feedback(reports + finals, NOON)
        for start, end in itertools.pairwise([0, *cuts, len(doubled)]):
            other.apply_feedback(doubled[start:end], NOON)
        assert counters(one) == counters(other)
        assert verify(one).clean
        assert verify(other).clean


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with a dictionary of events, and its counters with its log, after random operations."""

    postgres: PostgresServer | None = None
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.opened = fresh_store("", self.folder, self.postgres)
        self.store, self.place = self.opened.__enter__()
        self.now = NOON
        self.known: dict[bytes, Event] = {}
        self.sent: list[VerifiedFeedback] = []

    @rule(reports=REPORTS)
    def report(self, reports: list[VerifiedFeedback]) -> None:
        expected = []
        for report in reports:
            event, _, status = apply_clicks(
                self.known.get(report.event.id, report.event), report.clicks, report.final, self.now
            )
            expected.append(status)
            if status != "expired" or event.id in self.known:
                self.known[event.id] = event
        assert self.store.apply_feedback(reports, self.now) == expected
        self.sent += reports

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def report_again(self, data: Any) -> None:
        self.report(data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=5)))

    @rule(numbers=st.lists(NUMBERS, max_size=5))
    def save_events(self, numbers: list[int]) -> None:
        events = [an_event(number) for number in numbers]
        assert self.store.save_events(events) == [self.known.setdefault(event.id, event) for event in events]

    @rule(jump=st.sampled_from((1, WINDOW // 2, WINDOW, 9 * WINDOW, -WINDOW)))
    def clock(self, jump: int) -> None:
        self.now += jump

    @rule()
    def settle(self) -> None:
        after = {id: settle_at_deadline(event, self.now)[0] for id, event in self.known.items()}
        changed = sum(after[id] is not self.known[id] for id in after)
        assert self.store.settle_overdue(self.now, 100) == changed
        self.known = after

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.place)

    @invariant()
    def store_and_dictionary_agree(self) -> None:
        assert self.store.find_events(list(self.known)) == self.known
        settled = [event for event in self.known.values() if event.settled_at is not None]
        assert counters(self.store) == counted(settled)
        history = self.store.history(1, 0, 2 * NOON, 1)
        assert sum(row["events"] for row in history) == len(self.known)
        assert sum(row["clicks"] for row in history) == sum(event.clicks.bit_count() for event in settled)
        assert self.store.open_events() == len(self.known) - len(settled)

    def teardown(self) -> None:
        assert verify(self.store).clean
        self.store.close()


STATEFUL = settings(max_examples=20, stateful_step_count=15, deadline=None)


@pytest.mark.slow
def test_random_operations_on_sqlite_agree_with_the_fake_store() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = type("SqliteMachine", (StoreMachine,), {"folder": Path(folder)})
        run_state_machine_as_test(machine, settings=STATEFUL)


@pytest.mark.slow
@pytest.mark.nightly
def test_random_operations_on_postgres_agree_with_the_fake_store(postgres: PostgresServer, tmp_path: Path) -> None:
    machine = type("PostgresMachine", (StoreMachine,), {"folder": tmp_path, "postgres": postgres})
    run_state_machine_as_test(machine, settings=STATEFUL)
