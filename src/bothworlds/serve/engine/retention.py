"""Retention: a thread that deletes events which are older than the ``retention_days`` of their surface."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..checkpoints import checkpoint_key
from ..model import Surface, rfc3339
from ..reports.retention import RETENTION_MARGIN
from ..stores.base import Store
from ..visitors import sums_kept_since
from .secret_cache import SecretCache
from .tokens import MAX_WINDOW

__all__ = ["RETENTION_ACTOR", "Retention"]

RETENTION_ACTOR = "retention"  # the actor in the audit log
ACTION = "delete old events"  # in the audit log
BATCH = 200  # events in one transaction
IDLE_RATIO = 4.0  # after a batch, the thread sleeps this many times as long as the batch took: others write too
TICK_SECONDS = 60.0  # between two looks at the settings
PASS_MS = 3_600_000  # between two passes over a surface whose settings have not changed
DAY_MS = 86_400_000

_log = logging.getLogger("bothworlds")


class Retention(threading.Thread):
    """Deletes settled events that are too old and whose late window has ended, in small transactions.

    Several processes may do so at the same time. An open event is settled at its deadline first. ``surfaces`` returns
    the surfaces that are served, ``oldest_decision`` when the oldest decision was made that waits to be written: its
    event may be stored already, by feedback, and would be stored again. ``count`` is the number of events deleted by
    this process.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        secrets: SecretCache,
        surfaces: Callable[[], Iterable[Surface]],
        oldest_decision: Callable[[], int | None],
    ) -> None:
        super().__init__(name="bothworlds retention", daemon=True)
        self._store, self._clock, self._secrets, self._surfaces = store, clock, secrets, surfaces
        self._oldest_decision = oldest_decision
        self._stopping = threading.Event()
        self._passed: dict[int, tuple[float, int]] = {}  # surface id -> retention_days and time of the last pass
        self.count = 0
        self.last_error: str | None = None

    def stop(self) -> None:
        """Asks the thread to end after the current batch; ``join`` waits for it."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self.run_due()
                self.forget_segments()
                self.forget_visitor_sums()
                self.last_error = None
            except Exception as error:  # the thread must survive every error
                self.last_error = str(error) or type(error).__name__
                _log.warning("old events are not deleted: %s", self.last_error)

    def run_due(self) -> int:
        """Deletes old events of all surfaces whose pass is due; returns how many. Blocks; raises StoreError."""
        count, now = 0, self._clock()
        for surface in self._surfaces():
            days = surface.settings.retention_days
            passed = self._passed.get(surface.id)
            if days is None or (passed is not None and passed[0] == days and 0 <= now - passed[1] < PASS_MS):
                continue
            count += self._delete_old_events(surface, days)
            self._passed[surface.id] = (days, now)
        return count

    def forget_segments(self) -> None:
        """Forgets segments that were deleted so long ago that all their tokens have expired. Raises StoreError."""
        self._store.forget_segments(self._clock() - MAX_WINDOW - RETENTION_MARGIN)

    def forget_visitor_sums(self) -> None:
        """Deletes old sums by buckets of visitors, of comparisons that have ended. Raises StoreError."""
        for surface in self._surfaces():
            self._store.forget_visitor_sums(surface.id, sums_kept_since(surface, self._clock()))

    def _delete_old_events(self, surface: Surface, days: float) -> int:
        """Deletes all old events of a surface, in batches with pauses between them."""
        now, key = self._clock(), checkpoint_key(self._secrets.draw_key)
        waiting = self._oldest_decision()
        before = min(now - round(days * DAY_MS), now if waiting is None else waiting)
        count, audited = 0, 0
        base = {"at": now, "actor": RETENTION_ACTOR, "action": ACTION, "surface_id": surface.id}
        events = f"events created before {rfc3339(before)}"

        def entries(deleted: int) -> list[dict[str, Any]]:
            """Returns the audit entry of a transaction: of the first, and of the last, which has the number of all."""
            if deleted < BATCH:
                return [{**base, "detail": f"{count + deleted} {events}"}]
            return [] if count else [{**base, "detail": f"{events}, in several transactions"}]

        try:
            while not self._stopping.is_set():
                started = time.perf_counter()
                deleted = self._store.delete_old_events(
                    surface.id, before, now - RETENTION_MARGIN, BATCH, now, key, entries
                )
                count += deleted
                self.count += deleted
                if deleted < BATCH:
                    audited = count if deleted else 0
                    break
                self._stopping.wait(min(1.0, IDLE_RATIO * (time.perf_counter() - started)))
        finally:
            if count > audited:  # the last transaction was not followed by a smaller one
                self._store.write_audit([{**base, "detail": f"{count} {events}"}])
        return count
