"""Watches surfaces while nobody looks: once a minute, whether pages and feedback come in the right proportion, and
whether the guard must protect visitors from a learner that is worse than the page's own order.

What it finds is kept in the store, so that it survives a restart and is the same in all processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import msgspec

from ..model import Surface
from ..reports.guard import guard_key, guard_start, is_worse, read_guard_start, start_value
from ..reports.sample_ratio import RatioRecord, ratio_key, read_ratio, updated_ratio
from ..reports.strata import ArmHistory
from ..stores.base import Store

__all__ = ["SurfaceMonitor"]

_log = logging.getLogger("bothworlds")


class SurfaceMonitor:
    """Checks surfaces; the methods block on the store, raise StoreError, and are called in the refresher thread.

    ``mismatches`` has the ids of surfaces with a sample ratio mismatch; other threads may read it at any time.
    """

    def __init__(
        self,
        store: Store,
        history: ArmHistory,
        clock: Callable[[], int],
        activate_guard: Callable[[Surface], bool],
    ) -> None:
        self._store, self._history, self._clock = store, history, clock
        self._activate_guard = activate_guard
        self.mismatches: set[int] = set()

    def forget_others(self, surface_ids: Collection[int]) -> None:
        """Forgets what was found on all but these surfaces, which were deleted."""
        self.mismatches.intersection_update(surface_ids)

    def check(self, surface: Surface) -> None:
        """Counts the latest pages of a surface, and logs what it finds for the first time."""
        record = self._counted(surface)
        if record.alarm_at is None:
            self.mismatches.discard(surface.id)
        elif surface.id not in self.mismatches:
            self.mismatches.add(surface.id)
            _log.warning(
                "sample ratio mismatch on surface %r: pages or feedback of learner and holdout do not come in the"
                " proportion of their shares, so that their clicks cannot be compared",
                surface.name,
            )
        # A mismatch means that the clicks of the arms cannot be compared.
        guards = surface.settings.guard and surface.settings.holdout > 0.0 and surface.guarded_since is None
        trusted = record.alarm_at is None
        if guards and trusted and self._is_worse(surface) and self._activate_guard(surface):
            _log.warning("the guard serves the baseline order on surface %r: the learner is worse", surface.name)

    def _is_worse(self, surface: Surface) -> bool:
        now, since = self._clock(), read_guard_start(self._store, surface)
        if since is None:
            start = guard_start(self._store, self._history, surface, now)
            if start is not None:
                self._store.put(guard_key(surface), start_value(start), only_if_absent=True)
            return False
        strata = self._history.totals(self._store, surface, None, since, now) if since < now else []
        return is_worse(strata, surface.settings.guard_margin)

    def _counted(self, surface: Surface) -> RatioRecord:
        record, before = read_ratio(self._store, surface)
        updated = updated_ratio(self._store, self._history, surface, record, self._clock())
        if updated == record:
            return record
        after, key = msgspec.msgpack.encode(updated), ratio_key(surface.id)
        if before is None:
            self._store.put(key, after, only_if_absent=True)
        else:
            self._store.put(key, after, expected=before)
        # If another process was first, its record stands; this one counts from there the next time.
        return read_ratio(self._store, surface)[0]
