"""The one thread that writes: what waits is written together, and acknowledged once it is on disk."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..model import Event, Status, TooMany, Unavailable, VerifiedFeedback
from ..stores.base import Store, StoreError

__all__ = ["AWAY", "Writer", "unavailable"]

AWAY = "the store cannot be read or written now; send it again"
PROBE = "last probe"  # a fact that is written to see whether a store that failed can be written again

BATCH = 512  # reports or decisions in one transaction
BACKLOG = 20_000  # that may wait before more is refused
GATHER = 0.002  # seconds for which reports wait for company
MOMENT = 0.001  # and decisions, where there was company the last time
COMPANY = 3  # decisions that are company
LAZY = 0.05  # seconds a decision may wait that nobody waits for
SETTLE = 0.25  # seconds between looks for events past their deadline
COUNT = 5.0  # seconds between counts of open events
SLOW = 10.0  # seconds after which a store that does not answer is said to be away
PAUSE = (0.1, 2.0)  # seconds to leave a store alone that has failed: at first, and at most


class Writer(threading.Thread):
    """Writes decisions and feedback in batches, and settles what is overdue.

    Whoever sends feedback waits for the transaction that holds it. Decisions are waited for only where several
    processes share the store. If the store fails, everybody who waits is told so, decisions are kept for the next
    attempt, and nothing is acknowledged.
    """

    def __init__(self, store: Store, clock: Callable[[], int], changed: Callable[[int], None]) -> None:
        super().__init__(name="bothworlds writer", daemon=True)
        self._store, self._clock, self._changed = store, clock, changed
        self._reports: deque[tuple[Sequence[VerifiedFeedback], asyncio.Future[list[Status]]]] = deque()
        self._decisions: deque[tuple[Event, asyncio.Future[Event] | None]] = deque()
        self._sent = self._done = 0  # reports; each is counted by one thread only
        self._wake = threading.Event()
        self._stopping = False
        self._lazy_since = self._settled_at = self._counted_at = 0.0
        self._company = 0  # decisions in the last batch
        self._overdue = False  # are there more events past their deadline than fit into a batch?
        self._began = math.inf  # when what is being written was begun; nothing is
        self.open_events = 0
        self.last_error: str | None = None
        self.last_error_at = 0
        self.commit_ms = 0.0

    # From the loop's thread

    def report(self, reports: Sequence[VerifiedFeedback]) -> asyncio.Future[list[Status]]:
        """Resolved with what became of the reports, once that is durable."""
        if self._sent - self._done + len(reports) > BACKLOG:
            raise TooMany("more feedback is waiting than can be written; send it again in a second")
        if self._stopping:
            raise Unavailable("the service is stopping; send it again")
        future = asyncio.get_running_loop().create_future()
        self._sent += len(reports)
        self._reports.append((reports, future))
        self._call()
        return future

    def remember(self, event: Event) -> None:
        """Write a decision soon."""
        if len(self._decisions) >= BACKLOG:
            raise Unavailable("the store cannot keep up with decisions; show the page's own order for now")
        self._decisions.append((event, None))

    def remembered(self, event: Event) -> asyncio.Future[Event]:
        """Resolved with the decision as it is stored: this one, or one made before for the same request."""
        if len(self._decisions) >= BACKLOG or self._stopping:
            raise Unavailable("the store cannot keep up with decisions; show the page's own order for now")
        future = asyncio.get_running_loop().create_future()
        self._decisions.append((event, future))
        self._call()
        return future

    def _call(self) -> None:
        """Wake the thread; one that has been called and has not yet looked will find what was added since."""
        if not self._wake.is_set():
            self._wake.set()

    @property
    def queue_length(self) -> int:
        """Reports and decisions that wait."""
        return self._sent - self._done + len(self._decisions)

    @property
    def silence(self) -> float:
        """Seconds for which the store has not answered, if that is long; it may hang without an error."""
        seconds = time.monotonic() - self._began
        return seconds if seconds >= SLOW else 0.0

    def stop(self) -> None:
        """Write what waits, settle what is overdue, and end."""
        self._stopping = True
        self._wake.set()

    # In its own thread

    def run(self) -> None:
        pause = PAUSE[0]
        while not (self._stopping and not self._reports and not self._decisions):
            idle = not (self._reports or self._overdue or len(self._decisions) >= BATCH or self._awaited())
            if idle and not self._stopping:
                self._wake.wait(LAZY)
            self._wake.clear()
            if not self._stopping:
                self._gather()
            try:
                self._write_in_time()
                pause = PAUSE[0]
            except Exception as error:  # whatever it is, the thread must live on
                self._fail(error)
                if self._stopping:
                    return
                time.sleep(pause)
                pause = min(2 * pause, PAUSE[1])
        self._try_to_settle()

    def _awaited(self) -> bool:
        """Whether somebody waits for a decision."""
        return bool(self._decisions) and self._decisions[0][1] is not None

    def _gather(self) -> None:
        """Let others join: a transaction costs as much for many as for one. A lonely visitor does not wait for it."""
        if self._reports and len(self._reports) < BATCH // 8:
            time.sleep(GATHER)
        elif self._company >= COMPANY and len(self._decisions) < self._company:
            time.sleep(MOMENT)

    def _write_in_time(self) -> None:
        self._began = time.monotonic()
        try:
            self._write()
        finally:
            self._began = math.inf

    def _write(self) -> None:
        started = time.perf_counter()
        wrote = self._write_decisions() | self._write_reports()
        if wrote:
            self.commit_ms = 1e3 * (time.perf_counter() - started)
        elif self.last_error is not None:
            self._store.put(PROBE, str(self._clock()).encode())
        if self._overdue or started - self._settled_at > SETTLE:
            self._settled_at = started
            self._settle()
        if started - self._counted_at > COUNT:
            self._counted_at = started
            self.open_events = self._store.open_events()
        self.last_error = None  # all that was tried was done, a write among it

    def _write_decisions(self) -> bool:
        due = self._stopping or len(self._decisions) >= BATCH or time.monotonic() - self._lazy_since > LAZY
        if not self._decisions or not (due or self._awaited()):
            return False
        batch = [self._decisions[k] for k in range(min(BATCH, len(self._decisions)))]
        stored = self._store.remember([event for event, _ in batch])
        for _ in batch:
            self._decisions.popleft()
        self._lazy_since, self._company = time.monotonic(), len(batch)
        _resolve([(future, event) for (_, future), event in zip(batch, stored) if future is not None])
        return True

    def _write_reports(self) -> bool:
        batch: list[tuple[Sequence[VerifiedFeedback], asyncio.Future[list[Status]]]] = []
        size = 0
        while self._reports and size < BATCH:
            batch.append(self._reports.popleft())
            size += len(batch[-1][0])
        if not batch:
            return False
        try:
            statuses = iter(self._store.report([one for reports, _ in batch for one in reports], self._clock()))
        except BaseException:
            self._reports.extendleft(reversed(batch))  # to be told with all others
            raise
        self._done += size
        self.last_error = None  # before anybody is told that all is well
        _resolve([(future, [next(statuses) for _ in reports]) for reports, future in batch])
        self._changed(size)
        return True

    def _settle(self) -> None:
        """One batch: feedback that has come meanwhile goes first."""
        count = self._store.settle_overdue(self._clock(), BATCH)
        self._overdue = count >= BATCH
        if count:
            self._changed(count)

    def _try_to_settle(self) -> None:
        try:
            self._settle()
            while self._overdue:
                self._settle()
        except StoreError as error:
            self._note(error)

    def _fail(self, error: Exception) -> None:
        """Tell everybody who waits; keep what nobody waits for, since it has been shown."""
        self._note(error)
        waiting = [self._reports.popleft() for _ in range(len(self._reports))]
        self._done += sum(len(reports) for reports, _ in waiting)
        kept = [self._decisions.popleft() for _ in range(len(self._decisions))]
        self._decisions.extendleft((event, None) for event, future in reversed(kept) if future is None)
        refused: list[asyncio.Future[Any]] = [future for _, future in waiting]
        _refuse(refused + [future for _, future in kept if future is not None], unavailable(error))

    def _note(self, error: BaseException) -> None:
        self.last_error, self.last_error_at = str(error) or type(error).__name__, self._clock()
        self._overdue = False


def unavailable(error: BaseException) -> Unavailable:
    """What callers are told, whom it does not concern where the store is and what ails it; that goes to the log."""
    logging.getLogger("bothworlds").warning("the store fails: %s", error)
    return Unavailable(AWAY)


def _resolve(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    def settle() -> None:
        for future, answer in answers:
            if not future.done():
                future.set_result(answer)

    _in_loop([future for future, _ in answers], settle)


def _refuse(futures: Sequence[asyncio.Future[Any]], error: Exception) -> None:
    def settle() -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)

    _in_loop(futures, settle)


def _in_loop(futures: Sequence[asyncio.Future[Any]], call: Callable[[], None]) -> None:
    """One wake-up of the loop for a whole batch; none if the loop is gone, and with it whoever waited."""
    if futures and not (loop := futures[0].get_loop()).is_closed():
        loop.call_soon_threadsafe(call)
