"""Solving policies for new pins and exclusions in a thread, while the event loop answers other requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ..model import TooMany
from .served_surface import Choice, Display, Shelf, Signature

__all__ = ["MOST", "MOST_OF_CLIENT", "Solver"]

MOST = 32  # solves under way and waiting
MOST_OF_CLIENT = 16  # of them, begun by one client


class Solver:
    """A bounded queue of policies to solve, and the thread that solves them.

    Requests for the same policy share one solve. A policy is solved for the counters as they are when its turn comes.
    All methods are called in the event loop's thread, and only there are results put into the cache of a shelf.
    """

    def __init__(self) -> None:
        # One thread: between kernels it needs the interpreter lock, as the event loop does.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bothworlds solver")
        self._under_way: dict[tuple[Display, str, Signature], asyncio.Task[Choice | None]] = {}
        self._of_client: Counter[str] = Counter()

    async def solve(self, display: Display, segment: str, signature: Signature, client: str) -> Choice | None:
        """The policy for pins and exclusions; None if the segment is gone by the time its turn comes.

        TooMany if too many solves are waiting already, in all or of this client.
        """
        key = (display, segment, signature)
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= MOST or self._of_client[client] >= MOST_OF_CLIENT:
                raise TooMany("too many new combinations of pins and exclusions at once; send it again in a second")
            self._of_client[client] += 1
            task = self._under_way[key] = asyncio.create_task(self._solved(key, client))
        return await asyncio.shield(task)  # others may wait for it too

    async def _solved(self, key: tuple[Display, str, Signature], client: str) -> Choice | None:
        display, segment, signature = key
        try:
            solved = await asyncio.get_running_loop().run_in_executor(self._thread, _solved_now, *key)
        finally:
            del self._under_way[key]
            self._of_client -= Counter({client: 1})
        if solved is None:
            return None
        shelf, choice = solved
        if display.shelves.get(segment) is shelf:  # a shelf that has taken its place has other counters
            shelf.keep(signature, choice)
        return choice

    def stop(self) -> None:
        """Solve no more; what is being solved is finished."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _solved_now(display: Display, segment: str, signature: Signature) -> tuple[Shelf, Choice] | None:
    shelf = display.shelves.get(segment)
    return None if shelf is None else (shelf, shelf.solve(signature))
