"""Keeps policies up to date outside the request path: a thread reads counters and solves policies.

A policy is immutable. A new one replaces it by one assignment. Requests that still use the old one are correct, because
they log the probabilities that they were drawn with.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

import msgspec

from ... import policies
from ..model import Segment, Surface, split_counter_key
from ..observability.telemetry import NO_TELEMETRY, Telemetry
from ..stores.base import Store, StoreError
from .block_reader import BlockReader
from .change_detection import ChangeDetection
from .learner import SegmentCounters, blocks_of, counters_of, policy_of, policy_record
from .learner_comparison import LearnerComparison
from .prediction_renewal import PredictionRenewal
from .served_surface import ServedSegment, ServedSurface

__all__ = ["Refresher"]

IDLE_RATIO = 4.0  # after a refresh, the thread sleeps at least this many times as long as the refresh took
SAVE_MS = 1000  # minimum time between two stored policies of a segment
MAX_SAVES = 20  # stored policies per refresh
NEAR_OVERFLOW = 1 << 60  # a loss must stay below 2^63
EXPIRE_SECONDS = 60.0  # between two searches for expired segments
COMPACT_SECONDS = 10.0  # between two compactions of blocks of time


class Refresher(threading.Thread):
    """Solves policies whose counters have changed, every ``refresh_ms`` or sooner after ``refresh_events`` events.

    ``follow`` is called before every refresh of a shared store, ``expire`` once a minute, both in this thread.
    ``surfaces`` and ``by_id`` map names and ids to served surfaces; other threads may read them at any time.
    ``changes`` finds changes of visitors for policies that detect them.
    ``near_overflow`` holds the names of surfaces with a loss close to the largest integer.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        *,
        refresh_ms: int,
        refresh_events: int,
        shared: bool,
        follow: Callable[[], None] = lambda: None,
        expire: Callable[[], None] = lambda: None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        super().__init__(name="bothworlds refresher", daemon=True)
        self._store, self._clock, self._shared, self._follow, self._expire = store, clock, shared, follow, expire
        self._telemetry = telemetry
        self._interval, self._refresh_events = refresh_ms / 1000.0, refresh_events
        self._pending_events, self._revision = 0, -1
        self._wake = threading.Event()
        self._lock = threading.Lock()  # counters are read and installed in one step: a later read is never overwritten
        self._stopping = False
        self._expired_at = self._compacted_at = time.monotonic()
        self._blocks = BlockReader(store, clock)
        self.changes = ChangeDetection(store, clock)
        self.comparison = LearnerComparison(store, clock)
        self.predictions = PredictionRenewal(store, clock)
        self._read_revision: dict[int, int] = {}  # surface id -> revision up to which its segments have been read
        self._saved: dict[tuple[int, str], tuple[int, str]] = {}  # time and id of the last stored policy
        self._removed: set[int] = set()  # ids of surfaces that were deleted
        self.surfaces: dict[str, ServedSurface] = {}
        self.by_id: dict[int, ServedSurface] = {}
        self.near_overflow: set[str] = set()
        self.solver_ms = 0.0
        self.last_error: str | None = None

    def all_surfaces(self) -> list[Surface]:
        """Returns all surfaces; can be called from any thread."""
        return [served.surface for served in list(self.by_id.values())]

    def notify(self, events: int) -> None:
        """Reports that up to ``events`` more events have settled; can be called from any thread."""
        self._pending_events += events
        if self._pending_events >= self._refresh_events:
            self._wake.set()

    def stop(self) -> None:
        """Asks the thread to end; ``join`` waits for it."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        took = 0.0
        while not self._stopping:
            time.sleep(IDLE_RATIO * took)
            self._wake.wait(self._interval)
            self._wake.clear()
            started = time.perf_counter()
            expire = time.monotonic() - self._expired_at > EXPIRE_SECONDS
            if self._pending_events or self._shared or expire:
                try:
                    if self._shared:
                        self._follow()
                    self.refresh()
                    if expire:
                        self._expired_at = time.monotonic()
                        self._expire()
                    if time.monotonic() - self._compacted_at > COMPACT_SECONDS:
                        self._compacted_at = time.monotonic()
                        self.compact()
                    self.last_error = None
                except Exception as error:  # the old policies continue to serve
                    self._pending_events += 1
                    self.last_error = str(error) or type(error).__name__
            took = min(time.perf_counter() - started, 1.0)

    def refresh(self) -> None:
        """Brings all policies up to date with the store; can be called from any thread. Raises StoreError."""
        self._pending_events = 0
        revision = self._store.revision()
        if revision == self._revision:
            return
        with self._telemetry.span("refresh", surfaces=len(self.by_id)):
            self._refresh_all()
        self._revision = revision

    def _refresh_all(self) -> None:
        if self._shared:
            self._read_surfaces()
        failure: Exception | None = None
        for surface_id in list(self.by_id):
            try:
                self._refresh_surface(surface_id)
            except StoreError:
                raise
            except Exception as error:  # a policy that fails on one surface must not stop the others from learning
                failure = error
        if failure is not None:
            raise failure

    def compact(self) -> None:
        """Merges old blocks of time in the store; can be called from any thread. Raises StoreError."""
        with self._lock:
            self._blocks.compact()

    def read_changes(self) -> None:
        """Reads surfaces that other processes created or changed since the last refresh."""
        if self._store.revision() != self._revision:
            self._read_surfaces()

    def load(self) -> None:
        """Reads and solves everything in the store."""
        self._revision = self._store.revision()
        self._read_surfaces()

    def check(self, surface: Surface) -> None:
        """Solves a version of a surface for its present counters and discards the result; raises what solvers raise.

        Can be called from any thread. Raises StoreError.
        """
        served = _with_arms(surface)
        for one in served.learners:
            ServedSegment(one, counters_of(None, surface), self._clock())
        with self._lock:
            for segment in self._store.segments(surface.id):
                of_segment = served.of_learner(split_counter_key(segment.name)[1])
                counters = None if of_segment is None else self._counters(of_segment, segment)
                if of_segment is not None and counters is not None:
                    ServedSegment(of_segment, counters, self._clock())

    def install(self, surface: Surface) -> ServedSurface:
        """Serves this version of a surface from now on, with counters read again; returns the version in force.

        Can be called from any thread. A version that is older than the served one is ignored. One that cannot be solved
        is kept with its ``fault``: it must not keep the other surfaces from being served. Raises StoreError.
        """
        try:
            return self._install(surface)
        except StoreError:
            raise
        except Exception as error:
            fault = str(error) or type(error).__name__
            logging.getLogger("bothworlds").error("surface %r cannot be served: %s", surface.name, fault)
            with self._lock:
                return self._put(ServedSurface(surface, policies.policy("uniform"), fault))

    def _install(self, surface: Surface) -> ServedSurface:
        served = _with_arms(surface)
        # Solved here, outside the lock and the event loop, because this may compile kernels.
        for one in served.learners:
            one.empty_segment = ServedSegment(one, counters_of(None, surface), self._clock())
        with self._lock:
            if self._is_outdated(surface):
                return self._put(served)
            old = self.by_id.get(surface.id)
            segments = self._store.segments(surface.id)
            self.near_overflow.discard(surface.name)
            for segment in segments:
                self._install_segment(served, segment)
            self.add_segment(served, "")
            used = {
                (one.learner, name): s.used_at
                for one in (old.learners if old else ())
                for name, s in list(one.segments.items())
            }
            for one in served.learners:
                for name, served_segment in one.segments.items():
                    served_segment.used_at = used.get((one.learner, name), 0)
            self._read_revision[surface.id] = max((segment.revision for segment in segments), default=-1)
            return self._put(served)

    def _is_outdated(self, surface: Surface) -> bool:
        """Returns whether a surface was deleted, or is served in a later version."""
        old = self.by_id.get(surface.id)
        return surface.id in self._removed or (old is not None and old.surface.version > surface.version)

    def _put(self, served: ServedSurface) -> ServedSurface:
        """Serves a surface, unless it is outdated; returns the one in force."""
        surface = served.surface
        if self._is_outdated(surface):
            return self.by_id.get(surface.id, served)
        self.surfaces[surface.name] = self.by_id[surface.id] = served
        return served

    def add_segment(self, served: ServedSurface, segment: str) -> ServedSegment:
        """Returns the segment; creates it without counters, for all arms, if it is not served yet."""
        rounds = served.surface.baseline_starts.get(segment)
        for one in served.learners:
            if segment not in one.segments and rounds is not None:
                counters = counters_of(None, one.surface)._replace(baseline_rounds=rounds)
                one.segments.setdefault(segment, ServedSegment(one, counters, self._clock()))
            one.segments.setdefault(segment, one.empty_segment.copy(self._clock()))
        return served.segments[segment]

    def drop_segments(self, surface_id: int, segments: Collection[str]) -> None:
        """Stops serving segments that were deleted from the store."""
        with self._lock:
            if (served := self.by_id.get(surface_id)) is not None:
                self._drop(served, segments)

    def remove(self, surface_id: int) -> None:
        """Stops serving a surface that was deleted from the store; can be called from any thread."""
        with self._lock:
            self._removed.add(surface_id)
            served = self.by_id.pop(surface_id, None)
            if served is None:
                return
            name = served.surface.name
            if self.surfaces.get(name) is served:  # the name may be in use again
                del self.surfaces[name]
                self.near_overflow.discard(name)
            self._read_revision.pop(surface_id, None)
            self._drop(served, list(served.segments))

    def _read_surfaces(self) -> None:
        known_before = set(self.by_id)
        stored = self._store.surfaces()
        for surface_id in known_before - {surface.id for surface in stored}:
            self.remove(surface_id)
        for surface in stored:
            known = self.by_id.get(surface.id)
            if known is None or known.surface.version < surface.version:
                self.install(surface)

    def _refresh_surface(self, surface_id: int) -> None:
        with self._lock:
            if (served := self.by_id.get(surface_id)) is None or served.fault:  # it was deleted meanwhile
                return
            known = set(served.segments)  # before reading, so that a segment admitted meanwhile is not dropped
            segments = self._store.segments(surface_id, self._read_revision.get(surface_id, -1))
            for segment in segments:
                self._install_segment(served, segment)
            if segments:
                self._read_revision[surface_id] = max(segment.revision for segment in segments)
            if len(known) > 1:
                keys = self._store.segment_names(surface_id)
                self._drop(served, known - {split_counter_key(key)[0] for key in keys} - {""})
        for segment in segments[:MAX_SAVES]:
            self._save_policy(served, segment.name)

    def _drop(self, served: ServedSurface, segments: Collection[str]) -> None:
        for one in served.learners:
            keys = [one.counter_key(name) for name in segments]
            for name, key in zip(segments, keys):
                one.segments.pop(name, None)
                self._saved.pop((served.surface.id, key), None)
            self._blocks.drop(served.surface.id, keys)
            self.changes.drop(served.surface.id, keys)

    def _install_segment(self, surface: ServedSurface, segment: Segment) -> None:
        """Solves the policy of a segment for the learner that its counters belong to, if that is served."""
        started = time.perf_counter()
        name, number = split_counter_key(segment.name)
        served = surface.of_learner(number)
        self.add_segment(surface, name)
        if served is None:
            return
        old = served.segments[name]
        presolve = old.recently_used()
        self._blocks.note(served.surface.id, segment.name)
        counters = self._counters(served, segment)
        if counters is None:
            return
        if getattr(served.policy, "needs_blocks", False):
            items, slots = range(len(served.surface.items)), range(served.surface.settings.slots)
            blocks = blocks_of(counters.blocks, items, slots)
            if getattr(served.policy, "detect", False):
                changed_at = self.changes.changed_at(served.surface, segment.name, segment.rounds, blocks)
                counters = counters._replace(changed_at=changed_at)
            if hasattr(served.policy, "leader_plays_alone"):
                state = self.comparison.update(served.policy, served.surface, segment.name, segment.rounds, blocks)
                counters = counters._replace(**state._asdict())
        counters = counters._replace(baseline_rounds=served.surface.baseline_starts.get(name))
        if segment.rounds or segment.loss or presolve or counters.baseline_rounds is not None:
            version = self.predictions.in_force(served.policy, served.surface.id, segment.name)
            counters = counters._replace(version=version)
            made = ServedSegment(served, counters, self._clock(), presolve)
            if version := self.predictions.renewed(segment.name, made):
                made = ServedSegment(served, counters._replace(version=version), self._clock(), presolve)
            served.segments[name] = made
            self.predictions.fold(served.surface, segment)
        else:  # admitted, but nothing learned yet
            served.segments[name] = served.empty_segment.copy(self._clock(), segment.revision)
        served.segments[name].used_at = self._clock()
        if abs(counters.loss).max() > NEAR_OVERFLOW:
            self.near_overflow.add(served.surface.name)
        self.solver_ms = 1e3 * (time.perf_counter() - started)

    def _counters(self, served: ServedSurface, segment: Segment) -> SegmentCounters | None:
        """Returns the counters of a segment, with blocks if the policy needs them.

        None if it was reset or deleted since it was read, which the next refresh sees.
        """
        counters = counters_of(segment, served.surface)
        if not getattr(served.policy, "needs_blocks", False):
            return counters
        blocks = tuple(self._blocks.read(served.surface.id, segment.name))
        return counters._replace(blocks=blocks) if blocks or not segment.rounds else None

    def _save_policy(self, surface: ServedSurface, segment: str) -> None:
        """Stores the policy of a segment for the dashboard, about once a second if it changes."""
        name, number = split_counter_key(segment)
        served, key = surface.of_learner(number), (surface.surface.id, segment)
        served_segment = None if served is None else served.segments.get(name)
        if served is None or served_segment is None:  # it was deleted meanwhile
            return
        at, last = self._saved.get(key, (-SAVE_MS, ""))
        policy = served_segment.unconstrained.learner
        if policy.id != last and abs(served_segment.made_at - at) >= SAVE_MS:
            body = msgspec.msgpack.encode(policy_record(policy))
            self._store.save_policy(policy.id, served.surface.id, segment, served_segment.made_at, body)
            self._saved[key] = served_segment.made_at, policy.id


def _with_arms(surface: Surface) -> ServedSurface:
    """Returns a surface to serve, with one for every arm that has the policy of that arm."""
    served = ServedSurface(surface, policy_of(surface.settings))
    for arm in surface.settings.arms:
        settings = msgspec.structs.replace(surface.settings, policy=arm.policy, policy_settings=arm.policy_settings)
        one = ServedSurface(msgspec.structs.replace(surface, settings=settings), policy_of(settings))
        one.learner = surface.learner_of(arm.name)
        served.arms[arm.name] = one
    return served
