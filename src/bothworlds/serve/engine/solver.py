"""Solves policies for new pins and exclusions in a thread, while the event loop answers other requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ..model import TooMany
from .served_surface import Constraints, PolicyPair, ServedSegment, ServedSurface

__all__ = ["MAX_PENDING", "MAX_PENDING_PER_CLIENT", "Solver"]

MAX_PENDING = 32  # solves running and waiting
MAX_PENDING_PER_CLIENT = 16

_Key = tuple[ServedSurface, str, Constraints]


class Solver:
    """A bounded queue of policies to solve, and the thread that solves them.

    Requests for the same policy share one solve. A policy is solved for the counters at the time when its turn comes.
    All methods must be called in the thread of the event loop, the only thread that writes to the cache of a segment.
    """

    def __init__(self) -> None:
        # One thread: between kernels it needs the interpreter lock, as the event loop does.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bothworlds solver")
        self._pending: dict[_Key, asyncio.Task[PolicyPair | None]] = {}
        self._pending_of_client: Counter[str] = Counter()

    @property
    def pending(self) -> int:
        """The number of solves that are running or waiting."""
        return len(self._pending)

    @property
    def pending_clients(self) -> int:
        """The number of clients that have started one of the pending solves."""
        return len(self._pending_of_client)

    async def solve(
        self, served: ServedSurface, segment: str, constraints: Constraints, client: str
    ) -> PolicyPair | None:
        """Returns the policies for constraints; None if the segment was deleted before its turn came.

        Raises TooMany if too many solves are pending, in total or of this client.
        """
        key = (served, segment, constraints)
        task = self._pending.get(key)
        if task is None:
            if self.pending >= MAX_PENDING or self._pending_of_client[client] >= MAX_PENDING_PER_CLIENT:
                raise TooMany("too many new combinations of pins and exclusions at once; retry in a second")
            self._pending_of_client[client] += 1
            task = self._pending[key] = asyncio.create_task(self._run(key, client))
        return await asyncio.shield(task)  # other requests may wait for the same task

    async def _run(self, key: _Key, client: str) -> PolicyPair | None:
        served, segment, constraints = key
        try:
            solved = await asyncio.get_running_loop().run_in_executor(self._thread, _solve, *key)
        finally:
            del self._pending[key]
            self._pending_of_client -= Counter({client: 1})
        if solved is None:
            return None
        served_segment, pair = solved
        # A refresh may have replaced the segment by one with other counters.
        if served.segments.get(segment) is served_segment:
            served_segment.cache(constraints, pair)
        return pair

    def stop(self) -> None:
        """Cancels waiting solves; a running one finishes."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _solve(served: ServedSurface, segment: str, constraints: Constraints) -> tuple[ServedSegment, PolicyPair] | None:
    served_segment = served.segments.get(segment)
    return None if served_segment is None else (served_segment, served_segment.solve(constraints))
