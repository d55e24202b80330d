"""Reads the blocks of time of segments, and merges them in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..stores.base import BlockKey, Store
from ..time_blocks import TimeBlock, folded, second_of

__all__ = ["BlockReader"]

LEAST_SAVED = 32  # rows; fewer are not worth a transaction


class BlockReader:
    """Reads blocks that policies need, and keeps the number of stored blocks small.

    A block that was read is kept in memory while it is stored, because it does not change. All methods block on the
    store and raise StoreError. Only one thread at a time may call them.
    """

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock
        self._known: dict[tuple[int, str], dict[BlockKey, TimeBlock]] = {}
        self._grown: set[tuple[int, str]] = set()  # segments that may have new blocks

    def read(self, surface_id: int, segment: str) -> list[TimeBlock]:
        """Returns the blocks of a segment, oldest first, merged as far as their age allows now.

        They do not depend on whether the store has merged them already.
        """
        key = (surface_id, segment)
        self._known[key] = self._store.blocks(*key, self._known.get(key, {}))
        return folded(self._known[key].values(), second_of(self._clock()), self._store.boundaries(*key))

    def note(self, surface_id: int, segment: str) -> None:
        """Notes that counters of a segment have changed."""
        self._grown.add((surface_id, segment))

    def compact(self) -> None:
        """Merges stored blocks of the segments whose counters have changed, where that saves many rows."""
        while self._grown:
            self._store.compact(*self._grown.pop(), self._clock(), LEAST_SAVED)

    def drop(self, surface_id: int, segments: Collection[str]) -> None:
        """Forgets segments that were deleted."""
        for segment in segments:
            self._known.pop((surface_id, segment), None)
            self._grown.discard((surface_id, segment))
