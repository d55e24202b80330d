"""A store and a dictionary agree after random operations, at every time that a clock may show."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from bothworlds.serve.events import Event, Feedback
from bothworlds.serve.outcomes import due_at, merged, settled_by
from bothworlds.serve.stores import Store, open_store
from tests.serve.postgres_server import PostgresServer

from .contract import history_of, no_audit
from .samples import NOON, WINDOW, an_event, feedback_on, settle, started

NUMBERS = st.integers(1, 8)
SHOWN = st.sampled_from((None, True, False))
REPORTS = st.lists(
    st.builds(
        lambda number, clicks, final, shown: feedback_on(number, clicks, final=final, shown=shown),
        NUMBERS, st.integers(0, 7), st.booleans(), SHOWN,
    ),
    min_size=1, max_size=12,
)  # fmt: skip
_files = itertools.count()


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with a dictionary of events after random operations."""

    postgres: PostgresServer | None = None
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.place = self.postgres.fresh_address() if self.postgres else str(self.folder / f"{next(_files)}.db")
        self.store: Store = started(open_store(self.place))
        self.now = NOON
        self.known: dict[bytes, Event] = {}
        self.deleted: set[bytes] = set()
        self.given = 0  # numbers
        self.sent: list[Feedback] = []

    @rule(reports=REPORTS)
    def report(self, reports: list[Feedback]) -> None:
        expected = []
        for report in reports:
            id = report.event.id
            if id in self.deleted:
                expected.append("rejected")
                continue
            event, status = merged(self.known.get(id, report.event), report, self.now)
            expected.append(status)
            if status != "expired" or id in self.known:
                self.known[id] = event
        assert self.store.write([], reports, self.now) == expected
        self.sent += reports

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def report_again(self, data: Any) -> None:
        self.report(data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=5)))

    @rule(numbers=st.lists(NUMBERS, max_size=5))
    def decide(self, numbers: list[int]) -> None:
        events = [an_event(number) for number in numbers]
        self.store.write(events, [], self.now)
        for event in events:
            if event.id not in self.deleted:
                self.known.setdefault(event.id, event)

    @rule(jump=st.sampled_from((1, WINDOW // 2, WINDOW, 9 * WINDOW, -WINDOW)))
    def clock(self, jump: int) -> None:
        self.now += jump

    @rule()
    def settle(self) -> None:
        due = [event for event in self.known.values() if event.number is None and due_at(event) < self.now]
        expected = []
        for event in sorted(due, key=lambda event: (event.created_at, event.id)):
            self.given += 1
            reason = settled_by(event, "final", self.now, True)
            settled = replace(event, number=self.given, settled_at=self.now, settled_by=reason)
            self.known[event.id] = settled
            expected.append(settled)
        assert settle(self.store, self.now) == expected

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        id = an_event(number).id
        assert self.store.delete_events([id], no_audit) == (id in self.known)
        if id in self.known:
            self.deleted.add(id)
            del self.known[id]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.place)

    @invariant()
    def store_and_dictionary_agree(self) -> None:
        assert self.store.find_events(list(self.known)) == self.known
        settled = sorted((event for event in self.known.values() if event.number), key=lambda event: event.number or 0)
        assert list(self.store.settled(1)) == settled
        assert [event.number for event in self.store.settled_after(1, 0, 100)] == list(range(1, self.given + 1))
        assert self.store.open_events() == len(self.known) - len(settled)
        if not self.deleted:
            compared = [event for event in settled if event.settled_by in ("final", "deadline")]
            assert self.store.history(1, 0, 2 * NOON, 60_000) == history_of(compared, 60_000)

    def teardown(self) -> None:
        self.store.close()


STATEFUL = settings(max_examples=30, stateful_step_count=15, deadline=None)


@pytest.mark.slow
def test_random_operations_on_sqlite_agree_with_a_dictionary() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = type("SqliteMachine", (StoreMachine,), {"folder": Path(folder)})
        run_state_machine_as_test(machine, settings=STATEFUL)


@pytest.mark.slow
@pytest.mark.nightly
def test_random_operations_on_postgres_agree_with_a_dictionary(postgres: PostgresServer, tmp_path: Path) -> None:
    machine = type("PostgresMachine", (StoreMachine,), {"folder": tmp_path, "postgres": postgres})
    run_state_machine_as_test(machine, settings=STATEFUL)
