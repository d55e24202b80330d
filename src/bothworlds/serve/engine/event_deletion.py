"""Deletion of events that somebody asks for: one event, the event of a request, or all events of a visitor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..checkpoints import checkpoint_key
from ..model import REQUEST_LENGTH, Event, Unknown, checked_name, event_id_of, parse_event_id
from ..stores.base import Store
from ..visitors import VISITOR_LENGTH, visitor_hash
from .secret_cache import SecretCache
from .store_calls import in_thread
from .writer import Writer

__all__ = ["EventDeletion"]

BATCH = 500  # events in one transaction
ACTION = "delete events"  # in the audit log


class EventDeletion:
    """Deletes events. What was learned from them stays, and each deletion is in the audit log.

    All methods are called in the thread of the event loop and use the store in worker threads. What they delete is
    durably deleted when they return. ``forget`` is called with the ids of deleted events. They raise Unavailable.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        secrets: SecretCache,
        clock: Callable[[], int],
        forget: Callable[[Sequence[bytes]], None],
    ) -> None:
        self._store, self._writer, self._secrets = store, writer, secrets
        self._clock, self._forget = clock, forget
        self.count = 0  # deleted by this process

    async def delete(self, event_id: str, *, actor: str) -> None:
        """Deletes one event; raises Unknown."""
        key = parse_event_id(event_id)
        await self._writer.flush_decisions()
        if key is None or not await self._delete([key], actor, f"event {event_id}"):
            raise Unknown("there is no event with this id")

    async def delete_request(self, surface_id: int, request_id: str, *, actor: str) -> int:
        """Deletes the event of a request, if there is one; returns how many were deleted."""
        checked_name(request_id, "request_id", "/request_id", longest=REQUEST_LENGTH)
        key = event_id_of(surface_id, request_id, self._secrets.draw_key)
        await self._writer.flush_decisions()
        return await self._delete([key], actor, f"event {key.hex()}")

    async def delete_visitor(self, visitor: str, *, actor: str) -> int:
        """Deletes all events of a visitor, on all surfaces; returns how many. The audit log does not name her."""
        checked_name(visitor, "visitor", "/visitor", longest=VISITOR_LENGTH)
        hashed = visitor_hash(visitor, self._secrets.draw_key)
        await self._writer.flush_decisions()
        count = 0
        while ids := await in_thread(self._store.events_of_visitor, hashed, BATCH):
            count += await self._delete(ids, actor, "events of one visitor")
        return count

    async def _delete(self, ids: Sequence[bytes], actor: str, detail: str) -> int:
        now = self._clock()

        def entries(events: Sequence[Event]) -> list[dict[str, Any]]:
            counts = Counter(event.surface_id for event in events)
            base = {"at": now, "actor": actor, "action": ACTION}
            return [{**base, "detail": f"{detail}: {n} deleted", "surface_id": id} for id, n in sorted(counts.items())]

        key = checkpoint_key(self._secrets.draw_key)
        count = await in_thread(self._store.delete_events, ids, now, key, entries)
        self._forget(ids)
        self.count += count
        return count
