"""Keeping policies up to date, off the request path: counters are read again and policies solved in a thread.

A policy is never changed. A new one takes its place, by one assignment, and requests that still use the old one are
right as well: the probabilities they log are those they drew with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import msgspec

from ..model import Segment, Surface
from ..stores.base import Store, StoreError
from .learner import describe, policy_of, sums_of
from .served_surface import Display, Shelf

__all__ = ["Refresher"]

DUTY = 4.0  # after a refresh, leave everybody else at least so many times as long
SAVE_MS = 1000  # between saved policies of a segment
SAVES = 20  # at most, in one refresh
FULL = 1 << 60  # a loss must stay below 2^63
EXPIRE_SECONDS = 60.0  # between looks for segments that have expired


class Refresher(threading.Thread):
    """Solves policies whose counters have changed: every ``refresh_ms``, or sooner after ``refresh_events`` events."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        *,
        refresh_ms: int,
        refresh_events: int,
        shared: bool,
        look: Callable[[], None] = lambda: None,
        expire: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="bothworlds refresher", daemon=True)
        self._store, self._clock, self._shared, self._look, self._expire = store, clock, shared, look, expire
        self._every, self._events = refresh_ms / 1000.0, refresh_events
        self._pending, self._revision = 0, -1
        self._due = threading.Event()
        self._guard = threading.Lock()  # of what is installed: who reads counters serves by them before others read
        self._stopping = False
        self._expired_at = time.monotonic()
        self._read: dict[int, int] = {}  # surface id -> revision up to which its segments have been read
        self._saved: dict[tuple[int, str], tuple[int, str]] = {}
        self.displays: dict[str, Display] = {}
        self.by_id: dict[int, Display] = {}
        self.full: set[str] = set()  # surfaces that have a loss near the largest number
        self.solver_ms = 0.0
        self.last_error: str | None = None

    def changed(self, events: int) -> None:
        """So many events more have settled, or may have."""
        self._pending += events
        if self._pending >= self._events:
            self._due.set()

    def stop(self) -> None:
        self._stopping = True
        self._due.set()

    def run(self) -> None:
        took = 0.0
        while not self._stopping:
            time.sleep(DUTY * took)
            self._due.wait(self._every)
            self._due.clear()
            started = time.perf_counter()
            expire = time.monotonic() - self._expired_at > EXPIRE_SECONDS
            if self._pending or self._shared or expire:
                try:
                    if self._shared:
                        self._look()
                    self.refresh()
                    if expire:
                        self._expired_at = time.monotonic()
                        self._expire()
                    self.last_error = None
                except Exception as error:  # the old policies go on serving
                    self._pending += 1
                    self.last_error = str(error) or type(error).__name__
            took = min(time.perf_counter() - started, 1.0)

    def refresh(self) -> None:
        """Bring policies up to date with the store."""
        self._pending = 0
        revision = self._store.revision()
        if revision == self._revision:
            return
        if self._shared:
            self._read_surfaces()
        failure: Exception | None = None
        for surface_id in list(self.by_id):
            try:
                self._refresh_surface(surface_id)
            except StoreError:
                raise
            except Exception as error:  # a policy that fails on one surface does not keep the others from learning
                failure = error
        if failure is not None:
            raise failure
        self._revision = revision

    def look_again(self) -> None:
        """Read surfaces that other processes may have made since the last refresh."""
        if self._store.revision() != self._revision:
            self._read_surfaces()

    def load(self) -> None:
        """Read and solve everything there is."""
        self._revision = self._store.revision()
        self._read_surfaces()

    def install(self, surface: Surface) -> Display:
        """Serve a surface as it is now; counters are read again."""
        display = Display(surface, policy_of(surface.settings))
        # Solved and compiled here, in whatever thread this is, so that no visitor has to wait for it.
        display.blank = Shelf(display, sums_of(None, surface), self._clock())
        with self._guard:
            old = self.by_id.get(surface.id)
            if old is not None and old.surface.version > surface.version:
                return old
            segments = self._store.segments(surface.id)
            self.full.discard(surface.name)
            for segment in segments:
                self._shelve(display, segment, None)
            self.shelf(display, "")
            for name, shelf in list(old.shelves.items()) if old else ():
                if name in display.shelves:
                    display.shelves[name].used_at = shelf.used_at
            self.displays[surface.name] = self.by_id[surface.id] = display
            self._read[surface.id] = max((segment.revision for segment in segments), default=-1)
        return display

    def shelf(self, display: Display, segment: str) -> Shelf:
        """A shelf for a segment nothing is known of yet; the one that has been made this moment, if there is one."""
        return display.shelves.setdefault(segment, display.blank.copy(self._clock()))

    def _read_surfaces(self) -> None:
        for surface in self._store.surfaces():
            known = self.by_id.get(surface.id)
            if known is None or known.surface.version < surface.version:
                self.install(surface)

    def _refresh_surface(self, surface_id: int) -> None:
        with self._guard:
            display = self.by_id[surface_id]
            known = set(display.shelves)  # before reading: one that is admitted meanwhile is not taken for deleted
            segments = self._store.segments(surface_id, self._read.get(surface_id, -1))
            for segment in segments:
                self._shelve(display, segment, display.shelves.get(segment.name))
                display.shelves[segment.name].used_at = self._clock()
            if segments:
                self._read[surface_id] = max(segment.revision for segment in segments)
            if len(known) > 1:
                self._drop(display, known - self._store.segment_names(surface_id) - {""})
        for segment in segments[:SAVES]:
            self._save(display, segment.name)

    def forget(self, surface_id: int, segments: Collection[str]) -> None:
        """Serve no more by segments that have been deleted."""
        with self._guard:
            self._drop(self.by_id[surface_id], segments)

    def _drop(self, display: Display, segments: Collection[str]) -> None:
        for name in segments:
            display.shelves.pop(name, None)
            self._saved.pop((display.surface.id, name), None)

    def _shelve(self, display: Display, segment: Segment, old: Shelf | None) -> None:
        started = time.perf_counter()
        hot = old.hot() if old else ()
        sums = sums_of(segment, display.surface)
        if segment.rounds or segment.loss or hot:
            display.shelves[segment.name] = Shelf(display, sums, self._clock(), hot)
        else:  # admitted, and nothing learned yet
            display.shelves[segment.name] = display.blank.copy(self._clock(), segment.revision)
        if abs(sums.loss).max() > FULL:
            self.full.add(display.surface.name)
        self.solver_ms = 1e3 * (time.perf_counter() - started)

    def _save(self, display: Display, segment: str) -> None:
        """Keep a policy for the dashboard, about once a second if it changes."""
        shelf, key = display.shelves.get(segment), (display.surface.id, segment)
        if shelf is None:  # deleted meanwhile
            return
        at, last = self._saved.get(key, (-SAVE_MS, ""))
        policy = shelf.plain.learner
        if policy.id != last and abs(shelf.made_at - at) >= SAVE_MS:
            body = msgspec.msgpack.encode(describe(policy))
            self._store.save_policy(policy.id, display.surface.id, segment, shelf.made_at, body)
            self._saved[key] = shelf.made_at, policy.id
