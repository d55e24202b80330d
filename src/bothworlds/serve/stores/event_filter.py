"""A Bloom filter of stored event ids: most requests are new, and need no look-up of an earlier decision.

A filter may claim that an id is stored although it is not (then it is looked up), but never the reverse, which would
give one request two lists. This holds for a store that belongs to one process:

1. Bits are set and never cleared. Once ``add`` has returned for an id, ``may_contain`` is True for it forever.
2. Every transaction that stores an event adds its id before it inserts the row, so that no reader sees the row earlier.
   If the transaction is rolled back, the id stays: a false claim that it is stored, which is harmless.
3. Rows that were there before are added by reading the table in the order of ids. A row that exists when this begins,
   and is not deleted, is read, whatever is inserted meanwhile. Until the end of the table, ``may_contain`` is True for
   every id.
4. No other process stores events: the file is locked exclusively. Where several processes share a store, as on
   PostgreSQL, there is no filter, and the unique index of the table decides.

Deleted events stay in the filter until the next start, which is harmless.

The filter is blocked (Putze, Sanders and Singler, 2007): all bits of an id are in one word of 64 bits, so that a query
reads one word. It grows by generations of double size (Almeida, Baquero, Preguiça and Hutchison, 2007). With at most 4
ids in a word on average, the rate of false claims is below 1% in each generation.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import numpy as np

__all__ = ["EventFilter"]

ID_BYTES = 16
FIRST_WORDS = 1 << 16  # of the first generation: 512 KiB
MAX_WORDS = 1 << 23  # of a generation: 64 MiB; the last one is filled beyond its capacity, and claims more and more
IDS_PER_WORD = 4

_halves = struct.Struct("<QQ").unpack


class EventFilter:
    """A set of event ids that may contain more than was added. ``may_contain`` and ``add`` can be called in any thread.

    ``complete`` is set once all rows that were stored before have been added.
    """

    def __init__(self, first_words: int = FIRST_WORDS, max_words: int = MAX_WORDS) -> None:
        self.complete = False
        self._max_words = max_words
        self._lock = threading.Lock()
        self._words = np.zeros(first_words, np.uint64)  # of the newest generation
        self._room = IDS_PER_WORD * first_words
        # Words and the last index of each; a view returns numbers of Python, which takes less time than those of NumPy.
        self._generations: tuple[tuple[memoryview[int], int], ...] = ((self._words.data, first_words - 1),)

    def may_contain(self, id: bytes) -> bool:
        """Returns False only if the id was never added and the filter is complete."""
        if not self.complete:
            return True
        place, bits = _halves(id[:ID_BYTES].ljust(ID_BYTES, b"\0"))
        mask = 1 << (bits & 63) | 1 << (bits >> 6 & 63) | 1 << (bits >> 12 & 63) | 1 << (bits >> 18 & 63)
        for words, last in self._generations:  # a generator expression takes twice as long
            if words[place & last] & mask == mask:
                return True
        return False

    def add(self, ids: Sequence[bytes]) -> None:
        """Adds ids; must return before a row with one of them is inserted."""
        if not ids:
            return
        padded = b"".join([id[:ID_BYTES].ljust(ID_BYTES, b"\0") for id in ids])
        places, bits = np.frombuffer(padded, "<u8").reshape(-1, 2).T
        masks = np.zeros(len(ids), np.uint64)
        for shift in (0, 6, 12, 18):
            masks |= np.uint64(1) << (bits >> np.uint64(shift) & np.uint64(63))
        with self._lock:
            if self._room <= 0 and self._words.size < self._max_words:
                self._grow()
            np.bitwise_or.at(self._words, places & np.uint64(self._words.size - 1), masks)
            self._room -= len(ids)

    def _grow(self) -> None:
        self._words = np.zeros(2 * self._words.size, np.uint64)
        self._room = IDS_PER_WORD * self._words.size
        self._generations = (*self._generations, (self._words.data, self._words.size - 1))

    @property
    def size_bytes(self) -> int:
        """The memory of all generations."""
        return sum(words.nbytes for words, _ in self._generations)
