"""Watches surfaces while nobody looks: once a minute, whether pages and feedback come in the right proportion, and
whether the guard must protect visitors from a learner that is worse than the page's own order.

What it finds is kept in the store, so that it survives a restart and is the same in all processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import msgspec

from ..model import Arm, Surface
from ..reports.arm_comparison import compared_arms
from ..reports.guard import (
    guard_alpha,
    guard_key,
    guard_start,
    guarded_pairs,
    is_worse,
    learned_arms,
    read_guard_start,
    start_value,
)
from ..reports.sample_ratio import RatioRecord, ratio_key, read_ratio, updated_ratio
from ..reports.strata import ArmHistory
from ..stores.base import Store

__all__ = ["SurfaceMonitor"]

_log = logging.getLogger("bothworlds")


class SurfaceMonitor:
    """Checks surfaces; the methods block on the store, raise StoreError, and are called in the refresher thread.

    ``mismatches`` has the ids of surfaces with a sample ratio mismatch, ``arms_ahead`` and ``arms_behind`` the surface
    ids and the names of arms that are shown to get more or fewer clicks than the first arm. Other threads may read them
    at any time.
    """

    def __init__(
        self,
        store: Store,
        history: ArmHistory,
        clock: Callable[[], int],
        activate_guard: Callable[[Surface, Arm], bool],
    ) -> None:
        self._store, self._history, self._clock = store, history, clock
        self._activate_guard = activate_guard
        self.mismatches: set[int] = set()
        self.arms_ahead: set[tuple[int, Arm]] = set()
        self.arms_behind: set[tuple[int, Arm]] = set()

    def forget_others(self, surface_ids: Collection[int]) -> None:
        """Forgets what was found on all but these surfaces, which were deleted."""
        self.mismatches.intersection_update(surface_ids)
        for arms in (self.arms_ahead, self.arms_behind):
            arms -= {one for one in arms if one[0] not in surface_ids}

    def check(self, surface: Surface) -> None:
        """Counts the latest pages of a surface, and logs what it finds for the first time."""
        record = self._counted(surface)
        if record.alarm_at is None:
            self.mismatches.discard(surface.id)
        elif surface.id not in self.mismatches:
            self.mismatches.add(surface.id)
            _log.warning(
                "sample ratio mismatch on surface %r: pages or feedback of its arms do not come in the"
                " proportion of their shares, so that their clicks cannot be compared",
                surface.name,
            )
        # A mismatch means that the clicks of the arms cannot be compared.
        trusted = record.alarm_at is None
        self._compare_arms(surface, trusted)
        if trusted and surface.settings.guard and surface.settings.holdout > 0.0:
            self._guard(surface)

    def _compare_arms(self, surface: Surface, trusted: bool) -> None:
        compared = compared_arms(self._store, self._history, surface, self._clock()) if trusted else {}
        for arms, sign in ((self.arms_ahead, 1), (self.arms_behind, -1)):
            shown = {(surface.id, arm) for arm, direction in compared.items() if direction == sign}
            arms -= {one for one in arms if one[0] == surface.id} - shown
            arms |= shown

    def _guard(self, surface: Surface) -> None:
        for arm in learned_arms(surface):
            if arm not in surface.guarded and self._is_worse(surface, arm) and self._activate_guard(surface, arm):
                message = "the guard serves the baseline order on surface %r: the learner of arm %r is worse"
                _log.warning(message, surface.name, arm)
                return  # the surface has changed; other arms are checked in a minute

    def _is_worse(self, surface: Surface, arm: Arm) -> bool:
        now, since = self._clock(), read_guard_start(self._store, surface, arm)
        if since is None:
            start = guard_start(self._store, self._history, surface, arm, now)
            if start is not None:
                self._store.put(guard_key(surface, arm), start_value(start), only_if_absent=True)
            return False
        strata = guarded_pairs(self._store, self._history, surface, arm, since, now)
        return is_worse(strata, surface.settings.guard_margin, guard_alpha(surface))

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
