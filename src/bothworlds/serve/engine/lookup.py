"""Lookups of decisions in a store that takes milliseconds to answer: many in one call."""

from __future__ import annotations

import asyncio

from ..events import Event
from ..stores import Store
from .store_calls import in_thread


class Lookup:
    """Finds stored events. All methods are called in the thread of the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[bytes] = []
        self._running: asyncio.Task[dict[bytes, Event]] | None = None
        self._next: asyncio.Task[dict[bytes, Event]] | None = None

    async def find(self, event_id: bytes) -> Event | None:
        """Returns a stored event, or None; while a call is running, lookups wait for the next one.

        Raises Unavailable if the store fails.
        """
        self._waiting.append(event_id)
        if self._next is None:
            self._next = asyncio.create_task(self._find_waiting())
        return (await asyncio.shield(self._next)).get(event_id)

    async def _find_waiting(self) -> dict[bytes, Event]:
        if self._running is not None:
            await asyncio.wait([self._running])
        self._running, self._next = self._next, None
        ids, self._waiting = self._waiting, []
        return await in_thread(self._store.find_events, ids)
