"""Calls of the store from the event loop: in a thread, with its errors translated to those of the service.

A store that takes milliseconds to answer is asked for many decisions in one call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ..events import Event
from ..model import Invalid, Unavailable
from ..stores import Store, StoreError, Unstorable

T = TypeVar("T")

STORE_FAILED = "the store cannot be read or written now; retry later"


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Runs a blocking call in a worker thread; raises Invalid or Unavailable if the store fails."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except Unstorable as error:
        raise Invalid("the request contains a value that cannot be stored") from error
    except StoreError as error:
        raise unavailable(error) from error


def unavailable(error: BaseException) -> Unavailable:
    """Logs the error and returns the one for the caller, which does not reveal where the store is."""
    logging.getLogger("bothworlds").warning("the store fails: %s", error)
    return Unavailable(STORE_FAILED)


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
