"""Learning: events are settled, learned, and drawn from, at each refresh of the recorder.

One process at a time has the lease of the store: it settles events and gives them their numbers. Every process learns
the settled events of each surface in the order of their numbers, so that all have the same states.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...policies.marginals import most_shown_rows
from ..events import Event, Lease
from ..model import LISTED_ITEMS, Surface
from ..outcomes import as_they_come
from ..stores import SETTLE_LIMIT, LostLease, Store
from .lists import Lists
from .served import Registry

BATCH = SETTLE_LIMIT  # events settled in one transaction, and learned at a time
ENDINGS_SECONDS = 60.0  # between two looks at how the pages of a surface ended
COUNT_SECONDS = 5.0  # between two counts of open events
LEASE_SECONDS = 3.0  # after which another process takes over from one that was stopped
SLICE = 0.01  # seconds that lists are made, or endings looked up, before feedback is looked for
SAVE_MS, MOST_SAVE_MS = 1000, 1_800_000  # between two stored policies of a learner: 1% of the age of its surface
MAX_SAVES = 20  # policies stored at a time
RETRY_SECONDS = 60.0  # before lists that could not be made are tried again, where there are none of before
IDLE_MS = 600_000  # the lists of a learner that was not used for so long are dropped
DAY, MINUTE = 86_400_000, 60_000


class Learning:
    """Settles events if this process has the ``lease``, learns them, and publishes lists.

    All methods but ``open`` are called in the thread of the recorder. They block and raise StoreError; attributes can
    be read in any thread.
    """

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], int]) -> None:
        self._store, self._registry, self._states = store, registry, registry.states
        self._clock = clock
        self._owner, self._leased_at = secrets.token_hex(8), -math.inf
        self._counted_at = -math.inf
        self._learned: dict[int, int] = {}  # the number of the last event that was learned, by surface id
        self._orders: dict[int, tuple[float, str, bool]] = {}  # surface id -> when looked up, mode, order
        self._changed: dict[int, int] = {}  # learner id -> surface id, whose lists are to be made again
        self._saved: dict[int, tuple[int, str]] = {}  # learner id -> time and id of the last stored policy
        self.lease: Lease | None = None
        self.open_events = 0

    def open(self) -> None:
        """Reads which events are settled; called once, before any state is read."""
        self._learned = self._store.last_numbers()

    @property
    def has_more(self) -> bool:
        """Whether lists are still to be made."""
        return bool(self._changed)

    def refresh(self) -> bool:
        """Settles one batch of events and learns; returns whether more may be due. ``publish`` makes lists later.

        New feedback need not wait for all events that are due.
        """
        now = time.monotonic()
        if now - self._leased_at > LEASE_SECONDS / 6:
            self.lease = self._store.acquire(self._owner, LEASE_SECONDS)
            self._leased_at = now
        settled = self._settle()
        self._learn(settled)
        if now - self._counted_at > COUNT_SECONDS:
            self._counted_at = now
            self.open_events = self._store.open_events()
        return len(settled) >= BATCH

    def refresh_all(self) -> None:
        """Settles everything that is due, learns it and makes all lists."""
        while self.refresh():
            continue
        while self.has_more:
            self.publish()

    def end(self) -> bool:
        """Settles everything that is due, and gives the lease back; returns False, since nothing is left."""
        while self.refresh():
            continue
        if self.lease is not None:
            self._store.release(self.lease)
            self.lease = None
        return False

    # Settling

    def _settle(self) -> list[Event]:
        """Settles one batch of events that are due."""
        if self.lease is None:
            return []
        surfaces = [served.surface for served in list(self._registry.by_id.values())]
        orders = self._orders_of(surfaces)
        modes = {surface.id: surface.settings.feedback for surface in surfaces if surface.id in orders}
        try:
            return self._store.settle(self.lease, self._clock(), orders, modes, BATCH)
        except LostLease:
            self.lease = None
            return []

    def _orders_of(self, surfaces: Iterable[Surface]) -> dict[int, bool]:
        """Returns whether final pages settle as they come, of the surfaces for which that is known.

        It is looked up for one, and for more while there is time: a store may have a thousand.
        """
        started = time.monotonic()
        orders: dict[int, bool] = {}
        late = False
        for surface in surfaces:
            mode = surface.settings.feedback
            at, known_mode, order = self._orders.get(surface.id, (-math.inf, None, False))
            in_time = mode == known_mode and started - at < ENDINGS_SECONDS
            if not in_time and not late:
                now, attribution = self._clock(), surface.settings.attribution_seconds
                past = self._store.endings(surface.id, now - DAY, now - round(1000 * attribution) - MINUTE)
                order = as_they_come(mode, past, attribution)
                self._orders[surface.id] = started, mode, order
                in_time, late = True, time.monotonic() - started >= SLICE
            if in_time or mode == known_mode:
                orders[surface.id] = order
        return orders

    # Learning

    def _learn(self, settled: Sequence[Event]) -> None:
        """Learns all events that were settled since, by any process."""
        numbers = self._store.last_numbers()
        own: dict[int, list[Event]] = {}
        for event in settled:
            own.setdefault(event.surface_id, []).append(event)
        for surface_id, last in numbers.items():
            after = self._learned.get(surface_id, 0)
            while after < last:
                events = own.pop(surface_id, [])
                if not events or events[0].number != after + 1:
                    events = self._store.settled_after(surface_id, after, BATCH)
                after = (events[-1].number or last) if events else last  # deleted ones are left out
                self._learn_events(surface_id, events)
                self._learned[surface_id] = after
        for surface_id in self._learned.keys() - numbers.keys():
            del self._learned[surface_id]

    def _learn_events(self, surface_id: int, events: Sequence[Event]) -> None:
        self._changed |= dict.fromkeys((event.learner_id for event in events), surface_id)
        for learner_id, error in self._states.learn(events).items():
            self._changed.pop(learner_id, None)
            if (one := self._registry.learner(surface_id, learner_id)) is not None:
                self._registry.by_id[surface_id].failed(one, error)
                one.lists = None  # the page's own order is shown: its state is not known

    # Lists

    def publish(self) -> None:
        """Makes the lists of a learner that has learned, and of more while there is time; see ``has_more``."""
        started, saves, late = time.monotonic(), 0, False
        while self._changed and not late:
            late = time.monotonic() - started >= SLICE
            learner_id = next(iter(self._changed))
            surface_id = self._changed.pop(learner_id)
            one, served = self._registry.learner(surface_id, learner_id), self._registry.by_id.get(surface_id)
            now = self._clock()
            if one is None or served is None:
                continue
            if one.lists is None and (not one.fault or time.monotonic() - one.failed_at < RETRY_SECONDS):
                continue  # not used here, or failed just now
            if abs(now - one.used_at) > IDLE_MS:
                one.lists = None  # made again for the next request
                continue
            served.publish(one, now)
            if self.lease is not None and one.lists is not None and saves < MAX_SAVES:
                saves += self._save_policy(served.surface, learner_id, one.lists)

    def _save_policy(self, surface: Surface, learner_id: int, lists: Lists) -> bool:
        """Stores the marginals of a learner for the dashboard, if they change; more often at first."""
        at, last = self._saved.get(learner_id, (-MOST_SAVE_MS, ""))
        made_at = lists.source.made_at
        pause = min(MOST_SAVE_MS, max(SAVE_MS, (made_at - surface.created_at) // 100))
        if lists.id == last or abs(made_at - at) < pause:
            return False
        rows = most_shown_rows(lists.marginals, LISTED_ITEMS)
        record = {
            "items": [surface.items[item].name for item in lists.items[rows].tolist()],
            "slots": lists.free.tolist(),
            "x": lists.marginals[rows].tolist(),
            "rounds": lists.source.rounds,
            "entropy": lists.entropy,
        }
        self._store.save_policy(lists.id, learner_id, made_at, msgspec.msgpack.encode(record))
        self._saved[learner_id] = made_at, lists.id
        return True
