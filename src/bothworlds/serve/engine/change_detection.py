"""Finds out when visitors have begun to click differently, for policies with the setting ``detect``.

A change is found in the blocks of a segment, at one of their boundaries. It is then stored as a number of the segment:
all workers use the same one, blocks are not merged across it, and it stays until a later change or a reset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...core import Block
from ...policies.parts.change_detector import BUCKET, find_change
from ..model import CHANGE, CHANGE_DETECTED, Surface, rfc3339, segment_words, split_counter_key
from ..stores.base import Store

__all__ = ["DETECTOR", "ChangeDetection"]

DETECTOR = "detector"  # the actor in the audit log
UNWRITTEN_MS = 2000  # decisions of the last seconds may not be stored yet


class ChangeDetection:
    """Tests segments for a change. Blocks on the store; raises StoreError. Only one thread at a time may call it."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock
        self._tested: dict[tuple[int, str], int] = {}  # rounds at the last test
        self.count = 0  # changes detected by this process

    def changed_at(self, surface: Surface, segment: str, rounds: int, blocks: Sequence[Block]) -> int | None:
        """Returns the second of the last change of a segment, given by its ``counter_key``; None if there was none.

        Tests for a new one if there are ``BUCKET`` more rounds than at the last test.
        """
        key = (surface.id, segment)
        known = self._store.numbers(*key).get(CHANGE)
        if abs(rounds - self._tested.get(key, 0)) < BUCKET:
            return known
        self._tested[key] = rounds
        # A page without a click is counted when its attribution window ends, one with a click earlier. Until then, its
        # block has too many clicks.
        oldest = self._store.oldest_open(surface.id)
        complete = (self._clock() if oldest is None else min(oldest, self._clock())) - UNWRITTEN_MS
        tested = [
            block for block in blocks if 1000 * block.until <= complete and (known is None or block.start >= known)
        ]
        found = find_change(tested, rounds)
        if found is None:
            return known
        name, learner = split_counter_key(segment)
        entry = {
            "at": self._clock(),
            "actor": DETECTOR,
            "action": CHANGE_DETECTED,
            "detail": f"visitors click differently since {rfc3339(1000 * int(found))}"
            + (f", {segment_words(name)}" if name else ""),
            "surface_id": surface.id,
            "segment": name,
            "learner": learner,
            "changed_at": 1000 * int(found),
        }
        if self._store.set_number(*key, CHANGE, int(found), expected=known, audit=[entry]):
            self.count += 1
            return int(found)
        return self._store.numbers(*key).get(CHANGE)  # another process was first, or a block lies across the change

    def drop(self, surface_id: int, segments: Collection[str]) -> None:
        """Forgets segments that were deleted."""
        for segment in segments:
            self._tested.pop((surface_id, segment), None)
