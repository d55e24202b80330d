"""What is done every second or minute: snapshots, learning a log again, the guard, retention.

Only the holder of the lease checks and deletes. What it finds is kept in the store, so that it survives a
restart and another holder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ...policies.parts.change_detector import ChangeDetector
from ..events import Lease
from ..model import Surface, rfc3339, sums_kept_since
from ..reports.guard import check_arm, learned_arms
from ..reports.inputs import RETENTION_MARGIN
from ..reports.sample_ratio import ratio_key, read_ratio, updated_ratio
from ..reports.strata import ArmHistory
from ..stores import LostLease, Store, StoreError
from .administration import Administration
from .learning import Learning
from .served import Registry, Served, ServedLearner
from .surface_rules import HOUR
from .views import changes_key, read_changes, read_state

RETENTION_ACTOR, DETECTOR = "retention", "detector"  # actors in the audit log
TICK_SECONDS = 1.0
MINUTE_MS = 60_000  # between two looks at surfaces
PASS_MS = HOUR  # between two passes of retention over a surface whose settings have not changed
DAY_MS = 24 * HOUR
BATCH = 200  # events deleted in one transaction
IDLE_RATIO = 4.0  # after a batch, the thread sleeps this many times as long as the batch took: others write too
SNAPSHOT_RATE = 1e6  # bytes per second

_log = logging.getLogger("bothworlds")


class Housekeeping(threading.Thread):
    """A thread that keeps surfaces in order; ``step`` and its parts block and raise StoreError.

    ``mismatches`` has the ids of surfaces with a sample ratio mismatch. Any thread may read it at any time.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        learning: Learning,
        administration: Administration,
        clock: Callable[[], int],
        history: ArmHistory,
    ) -> None:
        super().__init__(name="bothworlds housekeeping", daemon=True)
        self._store, self._registry, self._learning = store, registry, learning
        self._administration, self._clock, self._history = administration, clock, history
        self._stopping = threading.Event()
        self._looked_at = 0  # at the surfaces, in milliseconds
        self._snapshots_until = 0.0  # when the rate allows another one
        self._passed: dict[int, tuple[int, int]] = {}  # surface id -> version and time of the last pass of retention
        self._seen: dict[int, tuple[int, int]] = {}  # learner id -> number and rounds when changes were looked for
        self.mismatches: set[int] = set()
        self.last_error: str | None = None

    def stop(self) -> None:
        """Asks the thread to end after what it is doing; ``join`` waits for it."""
        self._stopping.set()

    def run(self) -> None:
        ending = False
        while not ending:
            ending = self._stopping.wait(TICK_SECONDS)
            try:
                self.save_snapshots() if ending else self.step()
                self.last_error = None
            except LostLease:  # the next holder goes on
                pass
            except Exception as error:  # the thread must survive every error
                self.last_error = str(error) or type(error).__name__
                _log.warning("housekeeping fails: %s", self.last_error)

    def step(self) -> None:
        """Does what is due."""
        self.learn_again()
        self.save_snapshots()
        now = self._clock()
        if not 0 <= now - self._looked_at < MINUTE_MS:
            self._looked_at = now
            self.look()

    # Every second

    def learn_again(self) -> None:
        """Learns the log again where a policy, its settings or slots were changed; then its lists are served.

        Retention may delete events as soon as a snapshot covers them, so that the new state is saved at once.
        """
        for learner_id in self._registry.states.unfinished():
            if self._stopping.is_set():
                return
            try:
                self._registry.states.rebuild(learner_id)
                if (lease := self._learning.lease) is not None:
                    self._registry.states.save(lease, learner_id, keep=1)
            except (LostLease, StoreError):
                raise
            except Exception as error:  # of the policy; the page's own order is shown, and ``fault`` says why
                _log.warning("a log cannot be learned again: %s", error)
            self._registry.renew([learner_id])

    def save_snapshots(self) -> None:
        """Saves snapshots that are due, as fast as ``SNAPSHOT_RATE`` allows; all of them if the thread is ending."""
        for learner_id in self._registry.states.due():
            ending = self._stopping.is_set()
            if (lease := self._learning.lease) is None or (time.monotonic() < self._snapshots_until and not ending):
                return
            size = self._registry.states.save(lease, learner_id)
            self._snapshots_until = time.monotonic() + size / SNAPSHOT_RATE

    # Every minute

    def look(self) -> None:
        """Looks after all surfaces, if this process has the lease."""
        if (lease := self._learning.lease) is None:
            return
        known = list(self._registry.by_id.values())
        self.mismatches &= {served.surface.id for served in known}  # others were deleted
        for served in known:
            if self._stopping.is_set():
                return
            try:
                self.check(served.surface)
                self.delete_old_events(lease, served)
                self.note_changes(served)
            except (LostLease, StoreError):
                raise
            except Exception as error:  # of a policy; the other surfaces are looked after
                _log.warning("surface %r is not looked after: %s", served.surface.name, error)
        self.erase(lease)

    # The holder of the lease, every minute

    def check(self, surface: Surface) -> None:
        """Counts the latest pages of a surface, and activates the guard if an arm is worse; logs what it finds."""
        record, before = read_ratio(self._store, surface)
        updated = updated_ratio(self._store, surface, record, self._clock())
        if updated != record or before is None:
            self._store.put(ratio_key(surface.id), msgspec.msgpack.encode(updated))
        trusted = updated.alarm_at is None  # a mismatch means that the clicks of the arms cannot be compared
        if trusted:
            self.mismatches.discard(surface.id)
        elif surface.id not in self.mismatches:
            self.mismatches.add(surface.id)
            _log.warning(
                "sample ratio mismatch on surface %r: pages or feedback of its arms do not come in the"
                " proportion of their shares, so that their clicks cannot be compared",
                surface.name,
            )
        if trusted and surface.settings.guard and surface.settings.holdout > 0.0:
            self._guard(surface)

    def _guard(self, surface: Surface) -> None:
        for arm in learned_arms(surface):
            if arm not in surface.guarded and check_arm(self._store, self._history, surface, arm, self._clock()):
                if self._administration.activate_guard(surface, arm):
                    message = "the guard serves the baseline order on surface %r: the learner of arm %r is worse"
                    _log.warning(message, surface.name, arm)
                return  # the surface has changed; other arms are checked in a minute

    def note_changes(self, served: Served) -> None:
        """Writes to the audit log when the policy of a learner has detected that visitors click differently."""
        for one in list(served.by_learner_id.values()):
            learner, lists = one.learner, one.lists
            if lists is None or self._seen.get(learner.id) == (lists.source.number, lists.source.rounds):
                continue
            self._seen[learner.id] = lists.source.number, lists.source.rounds
            count = read_state(served, one, self._registry, lambda state: _detected(state.state))
            known, now = read_changes(self._store, learner.id), self._clock()
            if count != len(known):  # fewer after a reset
                new = [now] * (count - len(known))
                self._store.put(changes_key(learner.id), msgspec.msgpack.encode([*known[:count], *new]))
                if new:
                    entry = {"at": now, "actor": DETECTOR, "action": "change detected", "surface_id": served.surface.id}
                    detail = f"visitors click differently since about {rfc3339(now)}"
                    self._store.write_audit([{**entry, "detail": detail}])

    # Deletion

    def erase(self, lease: Lease) -> None:
        """Erases the content of deleted events as soon as snapshots cover it, and tombstones that have expired."""
        self._cover(lease)
        while self._store.erase(lease, self._clock(), BATCH) == BATCH and not self._stopping.is_set():
            continue

    def delete_old_events(self, lease: Lease, served: Served) -> None:
        """Deletes events of a surface that are older than ``retention_days``, and old sums by visitors.

        Every hour, and after a change of the surface: then its states are saved first, because the snapshots of another
        policy would let go of events that the present one has to learn.
        """
        surface, now = served.surface, self._clock()
        version, at = self._passed.get(surface.id, (0, 0))
        if version == surface.version and 0 <= now - at < PASS_MS:
            return
        self._store.forget_visitor_sums(surface.id, sums_kept_since(surface, now))
        if (days := surface.settings.retention_days) is not None:
            if version != surface.version:
                for one in list(served.by_learner_id.values()):
                    self._save_present(lease, served, one)
            self._delete_old_events(lease, surface, now, now - round(days * DAY_MS))
        self._passed[surface.id] = surface.version, now

    def _delete_old_events(self, lease: Lease, surface: Surface, now: int, before: int) -> None:
        """Deletes events of a surface that were created before a time, in batches with pauses between them."""
        self._cover(lease, surface.id, before, now - RETENTION_MARGIN)
        entry = {"at": now, "actor": RETENTION_ACTOR, "action": "delete old events", "surface_id": surface.id}
        audit = [{**entry, "detail": f"events created before {rfc3339(before)}"}]
        deleted = BATCH
        while deleted == BATCH and not self._stopping.is_set():
            started = time.perf_counter()
            deleted = self._store.delete_old_events(lease, surface.id, before, now - RETENTION_MARGIN, BATCH, audit)
            audit = []
            self._stopping.wait(min(1.0, IDLE_RATIO * (time.perf_counter() - started)) if deleted == BATCH else 0.0)

    def _save_present(self, lease: Lease, served: Served, one: ServedLearner) -> None:
        """Saves the state of a learner under the present policy as its only snapshot, if it has learned anything."""
        read_state(served, one, self._registry, lambda state: None)
        self.learn_again()
        if read_state(served, one, self._registry, lambda state: state.number):
            self._registry.states.save(lease, one.learner.id, keep=1)

    def _cover(self, lease: Lease, surface_id: int | None = None, before: int = 0, late_before: int = 0) -> None:
        """Saves the snapshots that deletion waits for: a state must not depend on events that are gone."""
        waiting = self._store.uncovered(surface_id, before, late_before)
        rows = {learner.id: learner for learner in self._store.learners(surface_id)} if waiting else {}
        for learner in [rows[id] for id in waiting if id in rows]:
            served = self._registry.by_id.get(learner.surface_id)
            if served is None or served.fault:
                continue
            try:
                if (one := served.by_learner_id.get(learner.id)) is not None:
                    self._save_present(lease, served, one)
                else:
                    self._registry.states.cover(lease, learner, waiting[learner.id])
            except (LostLease, StoreError):
                raise
            except Exception as error:  # of the policy: its events are kept
                _log.warning("no snapshot of surface %r can be made: %s", served.surface.name, error)


def _detected(state: Any) -> int:
    """Returns a number that grows with every change of visitors that a policy detects; 0 if it has detected none."""
    if (effects := getattr(state, "effects", None)) is not None:
        return int(effects.alarm[0])
    detector = getattr(state, "detector", None)
    return int(detector.changes[0]) if isinstance(detector, ChangeDetector) else 0
