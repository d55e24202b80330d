"""Makes lists in threads while the event loop answers other requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ..model import TooMany
from ..stores import StoreError
from .lists import Lists
from .served import UNCONSTRAINED, Constraints, Served, ServedLearner
from .store_calls import unavailable

MAX_PENDING = 32  # lists for constraints that are being made, or wait for it
MAX_PENDING_PER_CLIENT = 16

_Key = tuple[Served, int, Constraints]


class Solver:
    """Two bounded queues, each with a thread: lists for constraints, and learners that are used for the first time.

    Requests for the same lists wait for the same call. All methods are called in the thread of the event loop.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        # One thread for each: between kernels it needs the interpreter lock, as the event loop does.
        self._threads = [ThreadPoolExecutor(1, f"bothworlds {name}") for name in ("loader", "solver")]
        self._pending: dict[_Key, asyncio.Task[Lists | None]] = {}
        self._of_client: Counter[str] = Counter()

    @property
    def pending(self) -> int:
        """The number of lists for constraints that are being made, or wait for it."""
        return sum(key[2] != UNCONSTRAINED for key in self._pending)

    async def publish(self, served: Served, one: ServedLearner) -> None:
        """Makes the lists of a learner that is used for the first time; raises Unavailable if the store fails."""
        await self._wait_for((served, one.learner.id, UNCONSTRAINED), one)

    async def solve(self, served: Served, one: ServedLearner, constraints: Constraints, client: str) -> Lists | None:
        """Returns lists with constraints, and caches them; None if they cannot be made.

        If too many are being made, in total or for this client, visitors with a context get the lists of those without
        one; for pins and exclusions, raises TooMany. Raises Unavailable if the store fails.
        """
        key = (served, one.learner.id, constraints)
        if key not in self._pending and constraints.is_whole:
            if self.pending >= MAX_PENDING:
                return one.lists
        elif key not in self._pending:
            if self.pending >= MAX_PENDING or self._of_client[client] >= MAX_PENDING_PER_CLIENT:
                raise TooMany("too many new combinations of pins and exclusions at once; retry in a second")
            self._of_client[client] += 1
            self._start(key, one).add_done_callback(lambda done: self._release(client))
        return await self._wait_for(key, one)

    def renew(self, served: Served, one: ServedLearner, constraints: Constraints) -> None:
        """Makes cached lists again soon, unless there is much to do; the old ones are used meanwhile."""
        key = (served, one.learner.id, constraints)
        if key not in self._pending and self.pending < MAX_PENDING // 2:
            self._start(key, one)

    async def _wait_for(self, key: _Key, one: ServedLearner) -> Lists | None:
        task = self._pending.get(key) or self._start(key, one)
        try:
            return await asyncio.shield(task)  # other requests may wait for the same task
        except StoreError as error:
            raise unavailable(error) from error

    def _start(self, key: _Key, one: ServedLearner) -> asyncio.Task[Lists | None]:
        task = self._pending[key] = asyncio.create_task(self._make(key, one))
        task.add_done_callback(lambda done: self._end(key, done))
        return task

    def _end(self, key: _Key, done: asyncio.Task[Lists | None]) -> None:
        del self._pending[key]
        if not done.cancelled():
            done.exception()  # nobody else looks at it if lists are made again

    def _release(self, client: str) -> None:
        self._of_client -= Counter({client: 1})

    async def _make(self, key: _Key, one: ServedLearner) -> Lists | None:
        (served, _, constraints), loop = key, asyncio.get_running_loop()
        if constraints == UNCONSTRAINED:
            await loop.run_in_executor(self._threads[0], served.publish, one, self._clock())
            return one.lists
        try:
            lists = await loop.run_in_executor(self._threads[1], served.make, one, constraints, self._clock())
        except StoreError:
            raise
        except Exception as error:
            served.failed(one, error)
            return None
        served.keep(one, constraints, lists)
        return lists

    def stop(self) -> None:
        """Cancels what waits; what runs finishes."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
