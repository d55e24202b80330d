"""Workers that are stopped in the middle of a transaction, or lose the lease: others go on, nothing is written twice.

A worker is a process of its own, which stops itself (SIGSTOP) between two statements of a transaction.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bothworlds.serve.events import Lease
from bothworlds.serve.stores import LostLease, Store, StoreError, events, open_store
from bothworlds.serve.stores import postgres as postgres_module
from tests.serve.conftest import on_both
from tests.serve.postgres_server import PostgresServer

from .contract import no_audit, numbered
from .samples import LIMIT, NOON, WINDOW, an_event, feedback_on, settle, started

ROOT = Path(__file__).parents[3]
MODES: Any = {1: "final"}
SHORT = 0.2  # seconds of a lease

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")


def stop_before(name: str) -> None:
    """Makes this process stop when it is about to call a function of ``stores.events``."""
    real = getattr(events, name)

    def stopping(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return real(*args, **options)

    setattr(events, name, stopping)


def write_and_stop(place: str) -> None:
    """The child: locks the rows of events, then stops."""
    stop_before("merged")
    open_store(place).write([], [feedback_on(k, 1) for k in (2, 4)], NOON)


def settle_and_stop(place: str) -> None:
    """The child: reads what is due while it holds the lease, then stops; ends with 3 if it is told that it lost."""
    store = open_store(place)
    lease = store.acquire("child", SHORT)
    assert lease is not None
    stop_before("settle_events")
    try:
        store.settle(lease, NOON + 1, {}, MODES, LIMIT)
    except (StoreError, LostLease):
        sys.exit(3)


@contextmanager
def stopped_child(
    place: str, task: str, *, idle_seconds: int = postgres_module.IDLE_SECONDS
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has stopped itself in the middle of a task."""
    command = [sys.executable, "-m", "tests.serve.stores.test_stopped_workers", task, place, str(idle_seconds)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as child:
        try:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield child
        finally:
            child.kill()


def acquired(store: Store, owner: str) -> Lease:
    """The lease, as soon as it can be had."""
    while (lease := store.acquire(owner, SHORT)) is None:
        time.sleep(SHORT / 10)
    return lease


@pytest.mark.slow
def test_a_worker_that_is_stopped_with_locks_holds_others_up_for_seconds_only(postgres: PostgresServer) -> None:
    place = postgres.fresh_address()
    store = started(open_store(place))
    store.write([an_event(k) for k in (2, 4, 6)], [], NOON)
    with stopped_child(place, "write_and_stop"):
        assert store.write([], [feedback_on(k, 0b10) for k in (4, 6)], NOON) == ["accepted"] * 2
    assert [event.clicks for event in settle(store)] == [0b10, 0b10]
    store.close()


@pytest.mark.slow
def test_a_worker_that_may_keep_its_locks_is_caught(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    place = postgres.fresh_address()
    monkeypatch.setattr(postgres_module, "SETTINGS", "SET lock_timeout = '1s'")
    store = started(open_store(place))
    store.write([an_event(k) for k in (2, 4, 6)], [], NOON)
    with stopped_child(place, "write_and_stop", idle_seconds=0):
        with pytest.raises(StoreError, match="is held up by another process"):
            store.write([], [feedback_on(4, 0b10)], NOON)
        assert store.write([], [feedback_on(6, 0b10)], NOON) == ["accepted"]
    store.close()


@pytest.mark.slow
def test_a_holder_that_stops_in_the_middle_of_settling_is_replaced_and_writes_nothing(postgres: PostgresServer) -> None:
    place = postgres.fresh_address()
    store = started(open_store(place))
    store.write([], [feedback_on(k) for k in range(1, 9)], NOON)
    with stopped_child(place, "settle_and_stop") as child:
        lease = acquired(store, "me")
        assert lease.fence == 2
        settled = store.settle(lease, NOON + 1, {}, MODES, LIMIT)
        assert [event.number for event in settled] == list(range(1, 9))
        child.send_signal(signal.SIGCONT)
        assert child.wait(60) == 3
    assert numbered(store) == {k: k for k in range(1, 9)}
    assert store.last_numbers() == {1: 8}
    store.close()


def test_a_holder_whose_time_is_over_keeps_the_lease_until_another_one_takes_it(postgres: PostgresServer) -> None:
    place = postgres.fresh_address()
    store, other = started(open_store(place)), open_store(place)
    store.write([], [feedback_on(2)], NOON)
    lease = acquired(store, "slow")
    second = acquired(other, "other")  # as soon as the time is over
    assert second.fence > lease.fence
    with pytest.raises(LostLease):
        store.settle(lease, NOON + 1, {}, MODES, LIMIT)
    assert other.acquire("other", 60.0) == second  # renewed
    assert store.acquire("slow", 60.0) is None
    assert [event.number for event in other.settle(second, NOON + 1, {}, MODES, LIMIT)] == [1]
    store.close()
    other.close()


def test_a_lease_that_nobody_else_wants_stays_the_same_whatever_the_time(postgres: PostgresServer) -> None:
    store = started(open_store(postgres.fresh_address()))
    lease = acquired(store, "me")
    time.sleep(SHORT)
    store.save_snapshot(lease, 1, 1, "f", b"")
    assert store.acquire("me", SHORT) == lease
    store.close()


def test_the_holder_can_renew_its_lease_in_the_middle_of_a_transaction(postgres: PostgresServer) -> None:
    store = started(open_store(postgres.fresh_address()))
    lease = acquired(store, "me")
    renewed: list[Lease | None] = []

    def work(session: Any) -> None:
        thread = threading.Thread(target=lambda: renewed.append(store.acquire("me", 60.0)))
        thread.start()
        thread.join(60)

    store._write_leased(lease, work)
    assert renewed == [lease]
    store.close()


def test_a_lease_from_a_clock_that_was_ahead_does_not_last(postgres: PostgresServer) -> None:
    store = open_store(postgres.fresh_address())
    assert store.acquire("ahead", 60.0) is not None
    store.database.write(lambda session: session.run("UPDATE lease SET until = until + 3600000"))
    assert store.acquire("other", 60.0) is not None
    store.close()


def together(*works: Any) -> None:
    """Runs functions in threads of their own, each as often as it wants; raises their errors."""
    failures: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures


@pytest.mark.slow
@on_both
def test_workers_that_write_and_settle_at_once_number_every_event_once(place: str) -> None:
    first = started(open_store(place), "home", "other")
    stores = [first, open_store(place)] if first.shared else [first, first]
    count, returned = 240, []
    modes: Any = {1: "final", 2: "final"}

    def page(k: int) -> dict[str, Any]:
        return {"surface_id": k % 2 + 1, "learner_id": 2 * (k % 2) + 1, "context": {}}

    def worker(index: int) -> None:
        store, owner = stores[index], f"worker {index}"
        for start in range(0, count, 8):
            # Both workers get the same requests, each in an order of its own.
            order = list(range(start, start + 8))[:: 1 - 2 * index]
            store.write([an_event(k, **page(k)) for k in order[:5]], [], NOON)
            store.write([], [feedback_on(k, k % 8, **page(k)) for k in order], NOON)
            if lease := store.acquire(owner, 60.0):
                with suppress(LostLease):  # SQLite gives the lease to anybody: it has one process
                    returned.extend(store.settle(lease, NOON + 1000, {}, modes, LIMIT))
                    store.release(lease)

    together(lambda: worker(0), lambda: worker(1))
    returned += settle(first, NOON + 1000)
    for surface_id in (1, 2):
        log = list(first.settled(surface_id))
        assert [event.number for event in log] == list(range(1, count // 2 + 1))
        assert sorted((e.number or 0, e.id) for e in returned if e.surface_id == surface_id) == [
            (event.number, event.id) for event in log
        ]
        assert sum(row["settled"] for row in first.history(surface_id, 0, 2 * NOON, 60_000)) == count // 2
    for store in set(stores):
        store.close()


@pytest.mark.slow
@on_both
def test_requests_that_are_repeated_while_their_visitor_is_deleted_do_not_come_back(place: str) -> None:
    first = started(open_store(place))
    second = open_store(place) if first.shared else first
    ann = b"a" * 16
    decisions = [an_event(k, visitor=ann) for k in range(1, 200)]
    first.write(decisions, [], NOON)
    deleting = threading.Event()

    def repeat() -> None:
        while not deleting.is_set():
            second.write(decisions[::-1], [feedback_on(k, 1, visitor=ann) for k in range(1, 200, 3)], NOON)
            settle(second)

    def delete() -> None:
        while ids := first.events_of_visitor(ann, 20):
            assert first.delete_events(ids, no_audit) == len(ids)
        deleting.set()

    together(repeat, delete)
    second.write(decisions, [feedback_on(k, 1, visitor=ann) for k in range(1, 200)], NOON)
    assert list(first.events(1, 0, 2 * NOON)) == first.events_of_visitor(ann, 10) == []
    learned = [event.id for event in first.settled_after(1, 0, 1000)]
    settle(first, NOON + WINDOW + 999)
    assert [event.id for event in first.settled_after(1, 0, 1000)] == learned
    assert len(set(learned)) == len(learned)
    for store in {first, second}:
        store.close()


if __name__ == "__main__":
    task, place, idle_seconds = sys.argv[1:]
    limit = "idle_in_transaction_session_timeout = "
    postgres_module.SETTINGS = postgres_module.SETTINGS.replace(
        f"{limit}'{postgres_module.IDLE_SECONDS}s'", f"{limit}'{idle_seconds}s'"
    )
    globals()[task](place)
