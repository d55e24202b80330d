"""The segments of surfaces: when each was last used, when it expires, and how it is deleted.

A segment is a row of the store. It takes one of the surface's ``max_segments`` places from the first request that names
it until it is deleted, by an administrator or because nobody has used it for long. Deleting takes back what was learned
of it in the same way as a reset, so that the log still explains every counter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..model import Adjustment, Segment, Surface, SurfaceSettings
from ..schemas import SegmentView
from ..stores.base import Store
from . import surface_rules
from .learner import Sums
from .refresher import Refresher
from .served_surface import Display

__all__ = ["EXPIRY", "SegmentRegistry", "expiry_of"]

EXPIRY = "expiry"  # who deletes a segment that was not used for long, in the audit log
HOUR = 3_600_000
DAY = 24 * HOUR
GRAIN = HOUR // 6  # last uses are written to the store if they have changed by more
BATCH = 512  # events settled in one transaction
ATTEMPTS = 5  # to write last uses while other processes do

_uses = msgspec.msgpack.Decoder(dict[str, int])


def expiry_of(settings: SurfaceSettings, sums: Sums, used_at: int) -> int:
    """When a segment expires that was last used then.

    A segment with a click is kept for ``segment_idle_days``. One that never had a click is kept as long as a click on
    its last page still counts, and for an hour at least. A warm start counts as a click: it adds rounds that showed
    nothing.
    """
    window = round(1000 * (settings.attribution_seconds + settings.late_seconds))
    proven = bool(sums.clicked.any()) or sums.rounds > sums.shown.sum()
    idle = round(DAY * settings.segment_idle_days) if proven else HOUR
    return used_at + max(idle, window)


class SegmentRegistry:
    """Lists, deletes and expires segments; its calls block, and may come from any thread and from several processes."""

    def __init__(self, store: Store, refresher: Refresher, clock: Callable[[], int]) -> None:
        self._store, self._refresher, self._clock = store, refresher, clock

    def listed(self, display: Display) -> list[SegmentView]:
        """All segments of a surface by name, the default one first."""
        kept = self._kept(display.surface.id)[0]
        settings = display.surface.settings
        lines: list[SegmentView] = []
        for name, shelf in sorted(display.shelves.items()):
            used_at = max(shelf.used_at, kept.get(name, 0)) or None
            lines.append(
                {
                    "name": name,
                    "pages": shelf.sums.rounds,
                    "clicks": int(shelf.sums.clicked.sum()),
                    "used_at": used_at,
                    "expires_at": expiry_of(settings, shelf.sums, used_at) if name and used_at else None,
                }
            )
        return lines

    def delete(self, surface: Surface, segment: str, actor: str) -> bool:
        """Delete a segment, whatever it has learned; False if there is none of that name."""
        return segment in self._deleted(surface, {segment: None}, actor, "delete segment")

    def expire(self, display: Display) -> set[str]:
        """Delete what has expired; the names. Last uses in this process are made known to others first.

        A segment that was learned from since it was looked at is kept. Last uses reach the store ``GRAIN`` late at
        most, which is added to the time that every segment has.
        """
        surface, now = display.surface, self._clock()
        shelves = dict(display.shelves)
        used = self._merged(surface.id, {name: shelf.used_at for name, shelf in shelves.items()}, now)
        expired: dict[str, int | None] = {
            name: shelf.sums.revision
            for name, shelf in shelves.items()
            if name and now > GRAIN + expiry_of(surface.settings, shelf.sums, used[name]) and shelf.sums.revision >= 0
        }
        return self._deleted(surface, expired, EXPIRY, "expire segment") if expired else set()

    def _deleted(self, surface: Surface, revisions: Mapping[str, int | None], actor: str, action: str) -> set[str]:
        now = self._clock()
        for name in revisions:  # or they would bring the segment back when their deadlines come
            while self._store.settle_segment(surface.id, name, now, BATCH) == BATCH:
                continue

        def make(found: list[Segment]) -> tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]:
            learned = [one for one in found if one.rounds or one.loss]
            entries = [
                {
                    "at": now,
                    "actor": actor,
                    "action": action,
                    "detail": f"{one.name!r}: {one.rounds} pages learned from, {sum(one.clicked.values())} clicks",
                    "surface_id": surface.id,
                }
                for one in found
            ]
            return surface_rules.reset(surface, learned, now, actor), entries

        deleted = self._store.delete_segments(surface.id, revisions, make)
        self._refresher.forget(surface.id, deleted)
        return deleted

    def _kept(self, surface_id: int) -> tuple[dict[str, int], bytes | None]:
        """Last uses as the store has them, and the fact that holds them."""
        fact = self._store.get(_key(surface_id))
        return ({} if fact is None else _uses.decode(fact)), fact

    def _merged(self, surface_id: int, here: Mapping[str, int], now: int) -> dict[str, int]:
        """The last use of each segment in any process; what was never noted is taken for used now."""
        for _ in range(ATTEMPTS):
            kept, before = self._kept(surface_id)
            merged = {name: max(at, kept.get(name, 0)) or now for name, at in here.items()}
            unchanged = kept.keys() == merged.keys() and all(merged[name] - kept[name] <= GRAIN for name in merged)
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


def _key(surface_id: int) -> str:
    return f"segment uses {surface_id}"
