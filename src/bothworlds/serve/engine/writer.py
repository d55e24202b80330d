"""The writer thread: writes pending decisions and feedback in batches, and acknowledges them after the commit."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..model import Event, Status, TooMany, Unavailable, VerifiedFeedback
from ..observability.telemetry import NO_TELEMETRY, Telemetry
from ..stores.base import Store, StoreError
from .store_calls import unavailable

__all__ = ["Writer"]

PROBE = "last probe"  # a fact that is written to find out whether a store that failed can be written again

BATCH = 512  # pieces of feedback or decisions in one transaction
BACKLOG = 20_000  # pending ones before more is refused
FEEDBACK_WAIT = 0.002  # seconds that feedback waits for more of it, to share a transaction
GROUP_WAIT = 0.008  # the same, if the last batch was a group: few large transactions leave more time for requests
DECISION_WAIT = 0.001  # seconds that decisions wait, if the last batch was a group
MIN_GROUP = 3  # decisions, or calls with feedback, in a batch that make it a group
DECISION_DELAY = 0.05  # maximum seconds before a decision is written for which nobody waits
SETTLE_SECONDS = 0.25  # between two searches for events past their deadline
COUNT_SECONDS = 5.0  # between two counts of open events
HANG_SECONDS = 10.0  # a store that has not answered for this long is reported as hanging
RETRY_SECONDS = (0.1, 2.0)  # pause after a failure of the store: the first one, and the longest one

_Feedback = tuple[Sequence[VerifiedFeedback], asyncio.Future[list[Status]]]


class Writer(threading.Thread):
    """Writes decisions and feedback in batches, and settles overdue events.

    Feedback is acknowledged when the transaction that contains it is durable. Decisions are acknowledged only where
    several processes share the store (``save_decision``). If the store fails, every waiting future gets Unavailable,
    decisions without a future are kept for the next attempt, and nothing is acknowledged.

    ``changed`` is called in this thread with a number of events that may have settled. Without ``settles``, the thread
    leaves overdue events and the count of open events to another writer of this process.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        changed: Callable[[int], None],
        *,
        settles: bool = True,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        super().__init__(name="bothworlds writer" if settles else "bothworlds decision writer", daemon=True)
        self._store, self._clock, self._changed, self._settles = store, clock, changed, settles
        self._telemetry = telemetry
        self._feedback: deque[_Feedback] = deque()
        self._decisions: deque[tuple[Event, asyncio.Future[Event | None] | None]] = deque()
        self._unwritten: dict[bytes, Event] = {}  # decisions without a future, by id
        self._submitted = self._finished = 0  # pieces of feedback; each number is written by one thread only
        self._wake = threading.Event()
        self._stopping = False
        self._decisions_written_at = self._settled_at = self._counted_at = 0.0
        self._group_size = 0  # decisions in the last batch
        self._feedback_calls = 0  # in the last batch
        self._more_overdue = False  # whether more events are overdue than fit into a batch
        self._write_began = math.inf  # when the current write began; infinite if there is none
        self.open_events = 0
        self.last_error: str | None = None
        self.commit_ms = 0.0

    # Called in the thread of the event loop

    def submit_feedback(self, feedback: Sequence[VerifiedFeedback]) -> asyncio.Future[list[Status]]:
        """Returns a future of the statuses, which is resolved once they are durable.

        Raises TooMany if the backlog is full, Unavailable if the writer is stopping. The future raises Unavailable if
        the store fails.
        """
        if self._submitted - self._finished + len(feedback) > BACKLOG:
            raise TooMany("more feedback is pending than can be written; retry in a second")
        if self._stopping:
            raise Unavailable("the service is stopping; retry")
        future = asyncio.get_running_loop().create_future()
        self._submitted += len(feedback)
        self._feedback.append((feedback, future))
        self._wake_up()
        return future

    def enqueue_decision(self, event: Event) -> None:
        """Writes a decision within ``DECISION_DELAY``; raises Unavailable if the backlog is full."""
        if len(self._decisions) >= BACKLOG:
            raise Unavailable("the store cannot keep up with decisions; show the page's own order for now")
        self._unwritten[event.id] = event
        self._decisions.append((event, None))

    def unwritten_decision(self, event_id: bytes) -> Event | None:
        """Returns a decision that ``enqueue_decision`` took; None if there is none, or if it is stored by now."""
        return self._unwritten.get(event_id)

    def save_decision(self, event: Event) -> asyncio.Future[Event | None]:
        """Returns a future of the decision as stored: this one, or an earlier one for the same request.

        The result is None if the surface of the event was deleted.

        Raises Unavailable if the backlog is full or the writer is stopping. The future raises Unavailable if the store
        fails.
        """
        if len(self._decisions) >= BACKLOG or self._stopping:
            raise Unavailable("the store cannot keep up with decisions; show the page's own order for now")
        future = asyncio.get_running_loop().create_future()
        self._decisions.append((event, future))
        self._wake_up()
        return future

    async def flush_decisions(self) -> None:
        """Returns when all decisions that were enqueued before are stored; raises Unavailable if the store fails."""
        try:
            last, _ = self._decisions[-1]
        except IndexError:  # nothing is waiting
            return
        await self.save_decision(last)  # once more, which changes nothing

    def _wake_up(self) -> None:
        # Checked first, because setting an event takes a lock. The thread clears it before it reads the queues.
        if not self._wake.is_set():
            self._wake.set()

    @property
    def pending_feedback(self) -> int:
        """The number of pieces of feedback that are not written yet."""
        return self._submitted - self._finished

    @property
    def queue_length(self) -> int:
        """The number of pieces of feedback and decisions that are not written yet."""
        return self.pending_feedback + len(self._decisions)

    @property
    def oldest_decision(self) -> int | None:
        """When the oldest decision that is not written yet was made; None if there is none."""
        try:
            return self._decisions[0][0].created_at
        except IndexError:
            return None

    @property
    def hanging_seconds(self) -> float:
        """How long the store has not answered, if at least ``HANG_SECONDS``, else 0; it may hang without an error."""
        seconds = time.monotonic() - self._write_began
        return seconds if seconds >= HANG_SECONDS else 0.0

    @property
    def is_healthy(self) -> bool:
        """Whether the thread runs and its last write succeeded."""
        return self.is_alive() and self.last_error is None and not self.hanging_seconds

    def stop(self) -> None:
        """Asks the thread to write what is pending, settle what is overdue, and end; ``join`` waits for it."""
        self._stopping = True
        self._wake.set()

    # Called in the writer thread

    def run(self) -> None:
        pause = RETRY_SECONDS[0]
        while not (self._stopping and not self._feedback and not self._decisions):
            idle = not (self._feedback or self._more_overdue or len(self._decisions) >= BATCH or self._is_awaited())
            if idle and not self._stopping:
                self._wake.wait(DECISION_DELAY)
            self._wake.clear()
            if not self._stopping:
                self._wait_for_more()
            try:
                self._write_timed()
                pause = RETRY_SECONDS[0]
            except Exception as error:  # the thread must survive every error
                self._fail(error)
                if self._stopping:
                    return
                time.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS[1])
        if self._settles:
            self._settle_all()

    def _is_awaited(self) -> bool:
        """Returns whether a caller waits for the next decision."""
        return bool(self._decisions) and self._decisions[0][1] is not None

    def _wait_for_more(self) -> None:
        """Lets more requests join: a transaction costs the same for many as for one. A single visitor does not wait."""
        if self._feedback and len(self._feedback) < BATCH // 8:
            time.sleep(GROUP_WAIT if self._feedback_calls >= MIN_GROUP else FEEDBACK_WAIT)
        elif self._group_size >= MIN_GROUP and len(self._decisions) < self._group_size:
            time.sleep(DECISION_WAIT)

    def _write_timed(self) -> None:
        self._write_began = time.monotonic()
        try:
            self._write()
        finally:
            self._write_began = math.inf

    def _write(self) -> None:
        started = time.perf_counter()
        wrote = self._write_decisions() | self._write_feedback()
        if wrote:
            self.commit_ms = 1e3 * (time.perf_counter() - started)
        elif self.last_error is not None:
            self._store.put(PROBE, str(self._clock()).encode())
        if self._settles and (self._more_overdue or started - self._settled_at > SETTLE_SECONDS):
            self._settled_at = started
            self._settle()
        if self._settles and started - self._counted_at > COUNT_SECONDS:
            self._counted_at = started
            self.open_events = self._store.open_events()
        self.last_error = None  # everything succeeded, including a write

    def _write_decisions(self) -> bool:
        elapsed = time.monotonic() - self._decisions_written_at
        due = self._stopping or len(self._decisions) >= BATCH or elapsed > DECISION_DELAY
        if not self._decisions or not (due or self._is_awaited()):
            return False
        batch = [self._decisions[k] for k in range(min(BATCH, len(self._decisions)))]
        with self._telemetry.span("write decisions", batch_size=len(batch)):
            stored = self._store.save_events([event for event, _ in batch])
        for event, _ in batch:
            self._decisions.popleft()
            self._unwritten.pop(event.id, None)
        self._decisions_written_at, self._group_size = time.monotonic(), len(batch)
        _resolve([(future, event) for (_, future), event in zip(batch, stored) if future is not None])
        return True

    def _write_feedback(self) -> bool:
        batch: list[_Feedback] = []
        size = 0
        while self._feedback and size < BATCH:
            batch.append(self._feedback.popleft())
            size += len(batch[-1][0])
        if not batch:
            return False
        self._feedback_calls = len(batch)
        try:
            with self._telemetry.span("write feedback", batch_size=size):
                statuses = iter(self._store.apply_feedback([one for given, _ in batch for one in given], self._clock()))
        except BaseException:
            self._feedback.extendleft(reversed(batch))  # ``_fail`` rejects it together with the rest
            raise
        self._finished += size
        self.last_error = None  # before a caller sees its acknowledgement
        _resolve([(future, [next(statuses) for _ in given]) for given, future in batch])
        self._changed(size)
        return True

    def _settle(self) -> None:
        """Settles one batch of overdue events; only one, so that new feedback does not wait for all of them."""
        count = self._store.settle_overdue(self._clock(), BATCH)
        self._more_overdue = count >= BATCH
        if count:
            self._changed(count)

    def _settle_all(self) -> None:
        try:
            self._settle()
            while self._more_overdue:
                self._settle()
        except StoreError as error:
            self._record_error(error)

    def _fail(self, error: Exception) -> None:
        """Fails every waiting future; keeps decisions without a future, because their lists have been shown."""
        self._record_error(error)
        waiting = [self._feedback.popleft() for _ in range(len(self._feedback))]
        self._finished += sum(len(given) for given, _ in waiting)
        kept = [self._decisions.popleft() for _ in range(len(self._decisions))]
        self._decisions.extendleft((event, None) for event, future in reversed(kept) if future is None)
        failed: list[asyncio.Future[Any]] = [future for _, future in waiting]
        _reject(failed + [future for _, future in kept if future is not None], unavailable(error))

    def _record_error(self, error: BaseException) -> None:
        self.last_error = str(error) or type(error).__name__
        self._more_overdue = False


def _resolve(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    def set_results() -> None:
        for future, result in results:
            if not future.done():
                future.set_result(result)

    _call_in_loop([future for future, _ in results], set_results)


def _reject(futures: Sequence[asyncio.Future[Any]], error: Exception) -> None:
    def set_errors() -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)

    _call_in_loop(futures, set_errors)


def _call_in_loop(futures: Sequence[asyncio.Future[Any]], call: Callable[[], None]) -> None:
    """Wakes the event loop once for a whole batch; does nothing if the loop is closed and nobody waits any more."""
    if futures and not (loop := futures[0].get_loop()).is_closed():
        loop.call_soon_threadsafe(call)
