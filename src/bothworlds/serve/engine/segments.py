"""The segments of surfaces: last use, expiry and deletion.

A segment is a row of the store. It counts towards the surface's ``max_segments`` from the first request for it until it
is deleted, by an administrator or because it was not used for a long time. An administrator deletes its log with it.
Expiry resets its counters by a logged adjustment and keeps the log, which still explains every counter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from ..model import Adjustment, Segment, Surface, SurfaceSettings, split_counter_key
from ..schemas import SegmentView
from ..stores.base import Store
from . import surface_rules
from .learner import SegmentCounters
from .refresher import Refresher
from .served_surface import ServedSegment, ServedSurface

__all__ = ["EXPIRY_ACTOR", "SegmentRegistry", "expiry_of"]

EXPIRY_ACTOR = "expiry"  # the actor in the audit log that deletes expired segments
HOUR = 3_600_000
DAY = 24 * HOUR
USE_RESOLUTION = HOUR // 6  # a last use is written to the store if it has changed by more
BATCH = 512  # events settled in one transaction
ATTEMPTS = 5  # at writing last uses while other processes do the same

_uses = msgspec.msgpack.Decoder(dict[str, int])


def expiry_of(settings: SurfaceSettings, counters: SegmentCounters, used_at: int) -> int:
    """Returns when a segment expires that was last used at ``used_at``.

    A segment with a click is kept for ``segment_idle_days``. One without a click is kept until the late window of its
    last page ends, and for at least an hour. A warm start counts as a click: from a model, it shows as rounds without
    shows, from the baseline, in the surface.
    """
    window = round(1000 * (settings.attribution_seconds + settings.late_seconds))
    started = counters.rounds > counters.shown.sum() or counters.baseline_rounds is not None
    proven = bool(counters.clicked.any()) or started
    idle = round(DAY * settings.segment_idle_days) if proven else HOUR
    return used_at + max(idle, window)


class SegmentRegistry:
    """Lists, deletes and expires segments.

    All methods block on the store, can be called from any thread and by several processes, and raise StoreError.
    """

    def __init__(self, store: Store, refresher: Refresher, clock: Callable[[], int]) -> None:
        self._store, self._refresher, self._clock = store, refresher, clock

    def views(self, served: ServedSurface) -> list[SegmentView]:
        """Returns all segments of a surface by name, the default one first."""
        kept = self._stored_uses(served.surface.id)[0]
        settings = served.surface.settings
        views: list[SegmentView] = []
        for name, of_arms in sorted(_by_name(served).items()):
            used_at = max(*(segment.used_at for segment in of_arms), kept.get(name, 0)) or None
            views.append(
                {
                    "name": name,
                    "pages": sum(segment.counters.rounds for segment in of_arms),
                    "clicks": sum(int(segment.counters.clicked.sum()) for segment in of_arms),
                    "used_at": used_at,
                    "expires_at": _expiry(settings, of_arms, used_at) if name and used_at else None,
                }
            )
        return views

    def delete(self, surface: Surface, segment: str, actor: str) -> bool:
        """Deletes a segment with the counters of all arms and its log; returns False if it does not exist."""
        now = self._clock()

        def entries(found: Sequence[Segment], events: int) -> list[dict[str, Any]]:
            return [_entry(surface, one, now, actor, "delete segment", f", {events} events deleted") for one in found]

        if not self._store.purge_segment(surface.id, segment, now, entries):
            return False
        self._refresher.drop_segments(surface.id, {segment})
        if (served := self._refresher.by_id.get(surface.id)) is not None:  # so that its name is not stored any more
            used = {name: max(one.used_at for one in of_arms) for name, of_arms in _by_name(served).items()}
            self._merge_uses(surface.id, used, now)
        return True

    def _keys(self, surface: Surface, segments: Collection[str]) -> list[str]:
        """Returns the keys of all counters of segments, also of arms that are not served any more."""
        return [key for key in self._store.segment_names(surface.id) if split_counter_key(key)[0] in segments]

    def expire(self, served: ServedSurface) -> set[str]:
        """Deletes expired segments and returns their names; first writes the last uses in this process to the store.

        A segment whose counters have changed since they were read is kept. Last uses reach the store up to
        ``USE_RESOLUTION`` late, which is added to the lifetime of every segment.
        """
        surface, now = served.surface, self._clock()
        segments = _by_name(served)
        used = self._merge_uses(surface.id, {name: max(s.used_at for s in of) for name, of in segments.items()}, now)
        expired = {
            name
            for name, of_arms in segments.items()
            if name
            and now > USE_RESOLUTION + _expiry(surface.settings, of_arms, used[name])
            and max(segment.counters.revision for segment in of_arms) >= 0
        }
        if not expired:
            return set()
        revisions: dict[str, int | None] = dict.fromkeys(self._keys(surface, expired))
        for one in served.learners:
            for name in expired:
                if (key := one.counter_key(name)) in revisions and (segment := one.segments.get(name)) is not None:
                    revisions[key] = segment.counters.revision
        return self._empty(surface, revisions)

    def _empty(self, surface: Surface, revisions: Mapping[str, int | None]) -> set[str]:
        """Deletes segments with their counters; their log stays."""
        now = self._clock()
        # Open events would create the segment again at their deadlines.
        for name in sorted({split_counter_key(key)[0] for key in revisions}):
            while self._store.settle_segment(surface.id, name, now, BATCH) == BATCH:
                continue

        def make(segments: list[Segment]) -> tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]:
            learned = [one for one in segments if one.rounds or one.loss]
            entries = [_entry(surface, one, now, EXPIRY_ACTOR, "expire segment") for one in segments]
            return surface_rules.reset_adjustments(surface, learned, now, EXPIRY_ACTOR), entries

        deleted = {split_counter_key(key)[0] for key in self._store.delete_segments(surface.id, revisions, make)}
        self._refresher.drop_segments(surface.id, deleted)
        return deleted

    def _stored_uses(self, surface_id: int) -> tuple[dict[str, int], bytes | None]:
        """Returns the stored last uses, decoded and encoded."""
        fact = self._store.get(_key(surface_id))
        return ({} if fact is None else _uses.decode(fact)), fact

    def _merge_uses(self, surface_id: int, here: Mapping[str, int], now: int) -> dict[str, int]:
        """Writes last uses if they have changed; returns the last use of each segment in any process.

        A segment without a stored last use counts as used now.
        """
        for _ in range(ATTEMPTS):
            kept, before = self._stored_uses(surface_id)
            merged = {name: max(at, kept.get(name, 0)) or now for name, at in here.items()}
            unchanged = kept.keys() == merged.keys() and all(
                merged[name] - kept[name] <= USE_RESOLUTION for name in merged
            )
            if unchanged or (before is None and here.keys() <= {""}):
                break
            after = msgspec.msgpack.encode(merged)
            if before is None:
                written = self._store.put(_key(surface_id), after, only_if_absent=True)
            else:
                written = self._store.put(_key(surface_id), after, expected=before)
            if written == after:
                break
        return merged


def _by_name(served: ServedSurface) -> dict[str, list[ServedSegment]]:
    """Returns the segments of a surface by name, each for all arms."""
    arms = [dict(one.segments) for one in served.learners]
    return {name: [segments[name] for segments in arms if name in segments] for name in arms[0]}


def _expiry(settings: SurfaceSettings, of_arms: Sequence[ServedSegment], used_at: int) -> int:
    return max(expiry_of(settings, segment.counters, used_at) for segment in of_arms)


def _words(key: str) -> str:
    segment, learner = split_counter_key(key)
    return f'"{segment}"' + (f" of learner {learner}" if learner else "")


def _key(surface_id: int) -> str:
    return f"segment uses {surface_id}"


def _entry(surface: Surface, segment: Segment, now: int, actor: str, action: str, more: str = "") -> dict[str, Any]:
    """Returns the audit entry for a segment that is deleted."""
    clicks = sum(segment.clicked.values())
    detail = f"{_words(segment.name)}: {segment.rounds} pages learned from, {clicks} clicks{more}"
    return {"at": now, "actor": actor, "action": action, "detail": detail, "surface_id": surface.id}
