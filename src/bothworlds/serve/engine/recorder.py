"""The recorder: the one thread of a process that writes, settles and learns.

It writes what the event loop hands over, many decisions and much feedback in one transaction, and acknowledges it after
the commit. At each refresh it settles and learns.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from ..events import Event, Feedback
from ..model import Status, TooMany, Unavailable
from ..stores import Store
from .learning import Learning
from .store_calls import unavailable

T = TypeVar("T")
PROBE = "last probe"  # a fact that is written to find out whether a store that failed can be written again

BATCH = 512  # pieces of feedback in one transaction
DECISIONS = 2048  # decisions in one transaction
BACKLOG = 20_000  # pending ones before more is refused
FEEDBACK_WAIT = 0.002  # seconds that feedback waits for more of it, to share a transaction
GROUP_WAIT = 0.005  # the same, if the last batch was a group: few large transactions leave more time for requests
MIN_GROUP = 3  # calls with feedback in a batch that make it a group
DECISION_DELAY = 0.05  # maximum seconds before a decision is written
IDLE_SECONDS = 0.25  # between two refreshes without new feedback: events reach their deadline
IDLE_RATIO = 4.0  # after a refresh, the next one waits for so many times as long as it took
HANG_SECONDS = 10.0  # a store that has not answered for this long is reported as hanging
RETRY_SECONDS = (0.1, 2.0)  # pause after a failure of the store: the first one, and the longest one

_Feedback = tuple[Sequence[Feedback], asyncio.Future[list[Status]]]
_Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class Recorder(threading.Thread):
    """Writes decisions and feedback, and calls ``learning`` every ``refresh_ms``, or sooner after ``refresh_events``.

    If the store fails, waiting feedback gets Unavailable, decisions are kept for the next attempt, and nothing is
    acknowledged. ``follow`` is called before every refresh, in this thread.
    """

    def __init__(
        self,
        store: Store,
        learning: Learning,
        clock: Callable[[], int],
        *,
        refresh_ms: int,
        refresh_events: int,
        follow: Callable[[], None],
    ) -> None:
        super().__init__(name="bothworlds recorder", daemon=True)
        self._store, self._learning, self._clock, self._follow = store, learning, clock, follow
        self._interval, self._refresh_events = refresh_ms / 1000.0, refresh_events
        self._decisions: deque[Event] = deque()
        self._unwritten: dict[bytes, Event] = {}  # the same, by id
        self._feedback: deque[_Feedback] = deque()
        self._calls: deque[_Call] = deque()
        self._submitted = self._finished = 0  # pieces of feedback; each number is written by one thread only
        self._wake = threading.Event()
        self._stopping = False
        self._feedback_calls = 0  # in the last batch
        self._fed = 0  # pieces of feedback since the last refresh
        self._written_at = 0.0
        self._refreshed_at, self._refresh_at = -math.inf, 0.0  # the last refresh, and when the next one may begin
        self._step_began = math.inf  # when the present step began; infinite if there is none
        self.last_error: str | None = None  # of a write
        self.learning_error: str | None = None
        self.commit_ms = self.refresh_ms = 0.0

    # Called in the thread of the event loop

    def enqueue(self, event: Event) -> None:
        """Writes a decision within ``DECISION_DELAY``; raises Unavailable if the backlog is full."""
        if len(self._decisions) >= BACKLOG:
            raise Unavailable("the store cannot keep up with decisions; show the page's own order for now")
        self._unwritten[event.id] = event
        self._decisions.append(event)

    def unwritten(self, event_id: bytes) -> Event | None:
        """Returns a decision that ``enqueue`` took; None if there is none, or if it is stored by now."""
        return self._unwritten.get(event_id)

    def submit(self, feedback: Sequence[Feedback]) -> asyncio.Future[list[Status]]:
        """Returns a future of the statuses, which is resolved once they are durable.

        Raises TooMany if the backlog is full, Unavailable if the recorder is stopping. The future raises Unavailable if
        the store fails.
        """
        if self._submitted - self._finished + len(feedback) > BACKLOG:
            raise TooMany("more feedback is pending than can be written; retry in a second")
        self._refuse_if_stopping()
        future: asyncio.Future[list[Status]] = asyncio.get_running_loop().create_future()
        self._submitted += len(feedback)
        self._feedback.append((feedback, future))
        self._wake_up()
        return future

    async def call(self, function: Callable[[], T]) -> T:
        """Returns the result of a function that is called in this thread, between two batches.

        All decisions and feedback that were taken before are written. Raises what the function raises, with errors of
        the store as they are.
        """
        self._refuse_if_stopping()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.append((function, future))
        self._wake_up()
        return await future

    async def flush(self) -> None:
        """Returns when all decisions and feedback that were taken before are stored; raises Unavailable otherwise."""
        await self.call(lambda: None)

    async def refresh(self) -> None:
        """Returns when everything that was acknowledged before, and may settle, is settled, learned and drawn from."""
        await self.call(self._learning.refresh_all)

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the service is stopping; retry")

    def _wake_up(self) -> None:
        # Checked first, because setting an event takes a lock. The thread clears it before it reads the queues.
        if not self._wake.is_set():
            self._wake.set()

    @property
    def queue_length(self) -> int:
        """The number of pieces of feedback and decisions that are not written yet."""
        return self._submitted - self._finished + len(self._decisions)

    @property
    def hanging_seconds(self) -> float:
        """How long the store has not answered, if at least ``HANG_SECONDS``, else 0; it may hang without an error."""
        seconds = time.monotonic() - self._step_began
        return seconds if seconds >= HANG_SECONDS else 0.0

    @property
    def is_healthy(self) -> bool:
        """Whether the thread runs and its last write succeeded."""
        return self.is_alive() and self.last_error is None and not self.hanging_seconds

    def stop(self) -> None:
        """Asks the thread to write what is pending, settle what is due, and end; ``join`` waits for it."""
        self._stopping = True
        self._wake.set()

    # Called in the thread of the recorder

    def run(self) -> None:
        pause, ending = RETRY_SECONDS[0], False
        while not ending:
            ending = self._stopping
            if not ending:
                self._wait()
            self._wake.clear()
            self._step_began = time.monotonic()
            try:
                self._step(ending)
                self.last_error = None  # everything succeeded, including a write
            except Exception as error:  # the thread must survive every error
                self._fail(error)
            self._step_began = math.inf
            if self.last_error is None:
                pause = RETRY_SECONDS[0]
            elif not ending:
                time.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS[1])

    def _wait(self) -> None:
        """Waits until there is something to do; then lets more requests join, unless there is a single visitor."""
        busy = self._feedback or self._calls or self._learning.has_more or len(self._decisions) >= DECISIONS
        if not busy:
            left = self._refresh_at - time.monotonic()
            self._wake.wait(left if 0.0 < left < DECISION_DELAY else DECISION_DELAY)
        if self._feedback and len(self._feedback) < BATCH // 8 and not self._stopping:
            time.sleep(GROUP_WAIT if self._feedback_calls >= MIN_GROUP else FEEDBACK_WAIT)

    def _step(self, ending: bool) -> None:
        """Writes, calls, refreshes and publishes what is due; at the end, everything."""
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        try:
            self._write(everything=ending or bool(calls))
        except BaseException:
            self._calls.extendleft(reversed(calls))  # ``_fail`` rejects them
            raise
        for function, future in calls:
            try:
                result = function()
            except Exception as error:
                result = error
            _resolve([(future, result)])
        try:
            self._learn(ending)
        except Exception as error:  # lists of before are drawn from
            self.learning_error = str(error) or type(error).__name__

    def _learn(self, ending: bool) -> None:
        """Settles and learns if that is due; makes lists of what was learned."""
        now = time.monotonic()
        new = self._fed or now - self._refreshed_at > IDLE_SECONDS
        if ending or self._fed >= self._refresh_events or (new and now >= self._refresh_at):
            self._refresh(now, ending)
        if not ending:
            self._learning.publish()

    def _refresh(self, now: float, ending: bool) -> None:
        self._refreshed_at, self._fed, more = now, 0, False
        try:
            self._follow()
            more = self._learning.end() if ending else self._learning.refresh()
            self.learning_error = None
        finally:
            took = min(time.monotonic() - now, 1.0)
            self.refresh_ms = 1e3 * took
            self._refresh_at = now + (took if more else took + max(self._interval, IDLE_RATIO * took))

    # Writing

    def _write(self, everything: bool) -> None:
        while True:
            due = everything or time.monotonic() - self._written_at > DECISION_DELAY
            due = due or bool(self._feedback) or len(self._decisions) >= DECISIONS
            decisions = list(islice(self._decisions, DECISIONS)) if due else []
            batch: list[_Feedback] = []
            size = 0
            while self._feedback and size < BATCH:
                batch.append(self._feedback.popleft())
                size += len(batch[-1][0])
            if decisions or batch:
                self._write_batch(decisions, batch, size)
            elif self.last_error is not None:
                self._store.put(PROBE, str(self._clock()).encode())
            if not everything or not (self._decisions or self._feedback):
                return

    def _write_batch(self, decisions: list[Event], batch: list[_Feedback], size: int) -> None:
        started = time.perf_counter()
        feedback = [one for given, _ in batch for one in given]
        try:
            statuses = iter(self._store.write(decisions, feedback, self._clock()))
        except BaseException:
            self._feedback.extendleft(reversed(batch))  # ``_fail`` rejects it together with the rest
            raise
        for event in decisions:
            self._decisions.popleft()
            self._unwritten.pop(event.id, None)
        self._written_at = time.monotonic()
        self.commit_ms = 1e3 * (time.perf_counter() - started)
        self._finished += size
        self._fed += size
        self.last_error = None  # before a caller sees its acknowledgement
        if batch:
            self._feedback_calls = len(batch)
            _resolve([(future, [next(statuses) for _ in given]) for given, future in batch])

    # Failures

    def _fail(self, error: Exception) -> None:
        """Fails everything that waits for an acknowledgement; keeps decisions, because their lists have been shown."""
        self.last_error = str(error) or type(error).__name__
        waiting = [self._feedback.popleft() for _ in range(len(self._feedback))]
        self._finished += sum(len(given) for given, _ in waiting)
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        futures: list[asyncio.Future[Any]] = [future for _, future in [*waiting, *calls]]
        if futures:
            failure = unavailable(error)
            _resolve([(future, failure) for future in futures])


def _resolve(results: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    """Wakes the event loop once for many results, or errors; does nothing if the loop is closed."""

    def set_results() -> None:
        for future, result in results:
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    if results and not (loop := results[0][0].get_loop()).is_closed():
        loop.call_soon_threadsafe(set_results)
