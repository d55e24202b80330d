"""Kills a process that writes to a store and settles, at random moments, and checks the store afterwards.

    python -m tests.serve.stores.kill_writer --kills 2000 --store sqlite

A child writes batches, and acknowledges each on a pipe once ``write`` has returned. After every kill -9, everything
acknowledged is stored, any other batch is stored completely or not at all, and numbers and totals are those of the log.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bothworlds.progress import progress_bar
from bothworlds.serve.events import Event, Feedback
from bothworlds.serve.model import bucket_of
from bothworlds.serve.outcomes import is_compared
from bothworlds.serve.stores import LostLease, Store, VisitorSums, open_store

from .samples import LIMIT, NOON, SLOTS, an_event, started

ROOT = Path(__file__).parents[3]
# Half of the kills come at once after an acknowledgement, the others some milliseconds later, when a process that
# acknowledges too early is rarely found.
KILLS = 8
EVENTS = 600  # few enough that batches have events in common
FRESH = 150  # of these are new after every kill, so that there is always something to lose
SEEDS = 1_000_000  # of batches between two kills
ROUND = 50  # kills of one store; then a new one, since all of it is checked after each kill
NOW = NOON - 1  # no event is overdue but those below
LEASE = 0.2  # seconds

Batch = tuple[list[Event], list[Feedback]]


def event_numbered(number: int) -> Event:
    """Every fifth event is overdue when it is reported; some have a visitor."""
    overdue = {"expires_at": NOW - 1} if number % 5 == 0 else {}
    return an_event(number, visitor=(number % 90).to_bytes(16, "little") if number % 3 else None, **overdue)


def batch_of(seed: int) -> Batch:
    """The decisions and the feedback of a batch; its seed determines it, so that both processes know it."""
    chance = random.Random(seed)
    first = seed // SEEDS * FRESH
    decisions = [event_numbered(first + chance.randrange(EVENTS)) for _ in range(chance.choice((0, 5, 20)))]
    feedback = [
        Feedback(
            event=event_numbered(first + chance.randrange(EVENTS)),
            clicks=chance.randrange(1 << SLOTS),
            final=chance.random() < 0.5,
            shown=chance.choice((None, True)),
        )
        for _ in range(chance.choice((0, 1, 8, 64)))
    ]
    return decisions, feedback


def write_batches(place: str, first: int, count: int, hasty: bool) -> None:
    """The child: write a batch, then acknowledge it; a hasty child acknowledges too early, which must be detected."""
    store, owner = open_store(place), f"process {os.getpid()}"
    modes: Any = {1: "final"}
    os.write(1, b"ready\n")
    for seed in range(first, first + count):
        decisions, feedback = batch_of(seed)
        if hasty:
            os.write(1, b"%d\n" % seed)
        store.write(decisions, feedback, NOW)
        if not hasty:
            os.write(1, b"%d\n" % seed)
        if seed % 3 == 0 and (lease := store.acquire(owner, LEASE)):
            with suppress(LostLease):  # another process may have it by now
                for event in store.settle(lease, NOW, {}, modes, LIMIT)[-1:]:
                    store.save_snapshot(lease, event.learner_id, event.number or 0, "test", b"state")
                store.release(lease)
    store.close()


def started_child(place: str, first: int, count: int = SEEDS, hasty: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.serve.stores.kill_writer", "--child"]
    command += [place, str(first), str(count), str(int(hasty))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)


class Acknowledged:
    """What the store must have: all acknowledged decisions, clicks, and confirmations."""

    def __init__(self) -> None:
        self.clicks: dict[int, int] = {}
        self.final: set[int] = set()

    def add(self, batch: Batch) -> None:
        decisions, feedback = batch
        for event in decisions:
            self.clicks.setdefault(int.from_bytes(event.id, "big"), 0)
        for report in feedback:
            number = int.from_bytes(report.event.id, "big")
            self.clicks[number] = self.clicks.get(number, 0) | report.clicks
            if report.final:
                self.final.add(number)

    def problems(self, store: Store, pending: Batch) -> list[str]:
        """What the store has lost or made up, if the ``pending`` batch may have been written too."""
        log = list(store.events(1, 0, 2 * NOON))
        stored = {int.from_bytes(event.id, "big"): event for event in log}
        late = Acknowledged()
        late.add(pending)
        found = [f"{number} lost" for number in self.clicks if not self._is_in(stored, number)]
        for number, event in stored.items():
            if _clicks(event) & ~(self.clicks.get(number, 0) | late.clicks.get(number, 0)):
                found.append(f"{number} made up")
        applied = any(_clicks(event) & ~self.clicks.get(number, 0) for number, event in stored.items())
        found += [f"{number} torn" for number in late.clicks if applied and not late._is_in(stored, number)]
        settled = list(store.settled(1))
        if [event.number for event in settled] != list(range(1, store.last_numbers()[1] + 1)):
            found.append("numbers have gaps")
        if [event for event in settled if event.settled_by == ""] or len(settled) + store.open_events() != len(log):
            found.append("events are neither open nor settled")
        compared = [event for event in settled if is_compared(event)]
        if sum(row["settled"] for row in store.history(1, 0, 2 * NOON, 60_000)) != len(compared):
            found.append("the history differs from the log")
        if store.visitor_sums(1, None, 0, 2 * NOON) != visitor_sums_of(compared):
            found.append("the sums of visitors differ from the log")
        return found

    def _is_in(self, stored: dict[int, Event], number: int) -> bool:
        event = stored.get(number)
        if event is None or self.clicks[number] & ~_clicks(event):
            return False
        return event.final or event.number is not None or number not in self.final


def _clicks(event: Event) -> int:
    return event.clicks | event.late


def visitor_sums_of(events: Iterable[Event]) -> VisitorSums:
    """The sums by arm and bucket that the log gives."""
    found: VisitorSums = {}
    for event in events:
        if event.visitor is not None:
            buckets, bucket = found.setdefault(event.arm, {}), bucket_of(event.visitor)
            old, clicks = buckets.get(bucket, (0, 0, 0)), event.clicks.bit_count()
            buckets[bucket] = (old[0] + 1, old[1] + clicks, old[2] + clicks**2)
    return found


def killed_once(place: str, first: int, chance: random.Random, hasty: bool) -> int:
    """Start a child and kill it; return the seed of the first batch that was not acknowledged."""
    child = started_child(place, first, hasty=hasty)
    assert child.stdout is not None
    # So many lines, then at once or after a moment: in the middle of opening, of a batch, of a commit.
    lines = [child.stdout.readline() for _ in range(chance.randrange(12))]
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0.0, 0.01))
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.readlines()
    child.stdout.close()
    child.wait()
    whole = [line for line in lines if line.endswith(b"\n") and line != b"ready\n"]
    return int(whole[-1]) + 1 if whole else first


def wait_until_gone(place: str) -> None:
    """Wait until PostgreSQL has ended the sessions of killed clients."""
    if not place.startswith("postgres"):
        return
    import psycopg

    others = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'bothworlds'"
    with psycopg.connect(place, autocommit=True) as connection:
        while connection.execute(others).fetchall():
            time.sleep(0.005)


def kill_repeatedly(place: str, kills: int, seed: int = 0, hasty: bool = False) -> int:
    """Return how many batches were acknowledged; raises AssertionError if anything is lost, torn or counted twice."""
    chance = random.Random(seed)
    started(open_store(place)).close()
    acknowledged = Acknowledged()
    batches = 0
    for kill in range(kills):
        first = kill * SEEDS
        pending = killed_once(place, first, chance, hasty)
        for number in range(first, pending):
            acknowledged.add(batch_of(number))
        batches += pending - first
        wait_until_gone(place)
        store = open_store(place)
        problems = acknowledged.problems(store, batch_of(pending))
        # What was not acknowledged is sent again, as a client would.
        store.write(*batch_of(pending), NOW)
        acknowledged.add(batch_of(pending))
        problems += acknowledged.problems(store, ([], []))
        store.close()
        assert not problems, f"after kill {kill}: {problems[:10]}"
    return batches


def kill_in_rounds(fresh_place: Callable[[], str], kills: int, seed: int) -> int:
    """Kill this often, with a new store after every round."""
    batches = 0
    with progress_bar("kills", kills) as report:
        for k, done in enumerate(range(0, kills, ROUND)):
            count = min(ROUND, kills - done)
            batches += kill_repeatedly(fresh_place(), count, seed + k)
            report(count)
    return batches


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        write_batches(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1")
        return
    parser = argparse.ArgumentParser(description="kill -9 under load, repeatedly")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    outcome = "{}: {} kills, {} acknowledged batches, nothing lost, nothing counted twice"
    if chosen.store in ("sqlite", "both"):
        with tempfile.TemporaryDirectory() as folder:
            places = (str(Path(folder) / f"{k}.db") for k in itertools.count())
            batches = kill_in_rounds(lambda: next(places), chosen.kills, chosen.seed)
        print(outcome.format("SQLite", chosen.kills, batches), flush=True)
    if chosen.store in ("postgres", "both"):
        from tests.serve.postgres_server import PostgresServer

        server = PostgresServer()
        try:
            batches = kill_in_rounds(server.fresh_address, chosen.kills, chosen.seed)
        finally:
            server.remove()
        print(outcome.format("PostgreSQL", chosen.kills, batches), flush=True)


if __name__ == "__main__":
    main()
