"""Replay: states of learners, made from their snapshots and the settled events since, and kept while they are used.

Every process holds states by the same replay, and learns newly settled events as they come; the holder of the lease
also saves snapshots. So a restart, a process that follows, a change of policy and ``verify`` are one mechanism.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from ...policies.logged_pages import LogState
from ...policies.pages import has_parts
from ..events import Event, Learner, Lease
from ..stores import Store
from .states import SNAPSHOT_FORMAT, copied, decode, encode, learn_events, policy_label, same_bits, size_of

LIMIT = 128 << 20  # bytes of states that are kept
DUE_SECONDS = 0.5  # a snapshot is due when learning everything since the last one would take longer
READ_SECONDS = 1e-5  # to read an event from the store
BATCH = 250  # events learned at a time, so that other threads get a turn
KEPT = 2  # snapshots of a learner

T = TypeVar("T")


class Learned(NamedTuple):
    """The learners with new events, and those whose policy failed to learn them, with the error."""

    changed: set[int]
    failed: dict[int, Exception]


class _Target(NamedTuple):
    """With what a learner learns: its policy, and the items and slots of its surface."""

    policy: Any
    n_items: int
    slots: int

    def is_of(self, state: LogState) -> bool:
        """Returns whether a state was learned with this; a state with parts grows with the number of items."""
        if policy_label(state.policy) != policy_label(self.policy) or state.shape.n_positions != self.slots:
            return False
        return has_parts(self.policy) or state.shape.n_items == self.n_items


class _Held:
    """A state in memory; everything is read and written under its lock."""

    __slots__ = ("learner", "lock", "saved", "seconds", "size", "state", "wanted")

    def __init__(self, learner: Learner, state: LogState, saved: int, seconds: float) -> None:
        self.lock = threading.RLock()
        self.learner, self.state, self.size = learner, state, size_of(state)
        self.saved, self.seconds = saved, seconds  # the number of the last snapshot, and to learn the events since
        self.wanted: _Target | None = None  # with what the log is to be learned again


class States:
    """States of learners by id, up to ``limit`` bytes: the least recently used ones are dropped and made again.

    All methods may be called in any thread, and raise StoreError. Each state has a lock, so that no thread sees a page
    that is half learned. ``due_seconds`` is how long learning again may take before a snapshot is due.
    """

    def __init__(self, store: Store, *, limit: int = LIMIT, due_seconds: float = DUE_SECONDS) -> None:
        self._store, self._limit, self._due_seconds = store, limit, due_seconds
        self._lock = threading.Lock()  # of the two dictionaries
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._loading: dict[int, threading.Lock] = {}

    @property
    def size(self) -> int:
        """The number of bytes of all states."""
        with self._lock:
            return sum(held.size for held in self._held.values())

    def read(self, learner: Learner, policy: Any, n_items: int, slots: int, function: Callable[[LogState], T]) -> T:
        """Returns what ``function`` returns for the state of a learner; it copies what it keeps, and changes nothing.

        A state that is not held is made first: from the last snapshot and the events since. If the learner was reset
        since, it starts again at once. If the state was learned with another policy or other slots, the function gets
        it as it is, and ``unfinished`` names the learner until ``rebuild`` has learned the log again.

        Raises what the policy or the function raises.
        """
        target = _Target(policy, n_items, slots)
        held = self._found(learner.id)
        if held is not None and held.learner.reset_number < learner.reset_number:
            self._drop(held)
            held = None
        held = held or self._loaded(learner, target)
        with held.lock:
            held.wanted = None if target.is_of(held.state) else target
            return function(held.state)

    def learn(self, events: Sequence[Event]) -> Learned:
        """Learns newly settled events, by number within a surface; states that are not held will find them in the log.

        If a policy fails, its state is dropped, and the other learners learn.
        """
        by_learner: dict[int, list[Event]] = {}
        for event in events:
            by_learner.setdefault(event.learner_id, []).append(event)
        failed: dict[int, Exception] = {}
        for learner_id, own in by_learner.items():
            with self._lock:
                held = self._held.get(learner_id)
            if held is not None:
                try:
                    self._learn(held, own)
                except Exception as error:
                    self._drop(held)
                    failed[learner_id] = error
        return Learned(set(by_learner), failed)

    def _learn(self, held: _Held, events: Sequence[Event]) -> None:
        with held.lock:
            started, n = time.perf_counter(), len(held.state.loss)
            learn_events(held.state, events)
            held.seconds += time.perf_counter() - started + READ_SECONDS * len(events)
            if len(held.state.loss) > n:
                held.size = size_of(held.state)

    def forget(self, ids: Collection[int]) -> None:
        """Drops the states of learners that were deleted."""
        with self._lock:
            for id in ids:
                self._held.pop(id, None)

    # Loading

    def _found(self, learner_id: int) -> _Held | None:
        with self._lock:
            if learner_id in self._held:
                self._held.move_to_end(learner_id)
            return self._held.get(learner_id)

    def _loaded(self, learner: Learner, target: _Target) -> _Held:
        """Makes a state and holds it; another thread that wants the same one waits."""
        with self._lock:
            loading = self._loading.setdefault(learner.id, threading.Lock())
        try:
            with loading:
                return self._found(learner.id) or self._load(learner, target)
        finally:
            with self._lock:
                self._loading.pop(learner.id, None)

    def _load(self, learner: Learner, target: _Target) -> _Held:
        started = time.perf_counter()
        newest = self._store.snapshot(learner.id)
        state = None if newest is None else decode(newest.state, *target, learner.reset_number)
        saved = 0 if state is None else state.number
        if state is None:
            state = relearned(self._store, learner, *target)
        else:
            _learn_rest(self._store, learner.id, state)
        held = _Held(learner, state, saved, time.perf_counter() - started)
        with held.lock:
            with self._lock:
                self._held[learner.id] = held
            try:  # events that were settled meanwhile, for which ``learn`` did not find this state
                _learn_rest(self._store, learner.id, state)
            except BaseException:
                self._drop(held)
                raise
        self._evict()
        return held

    def _drop(self, held: _Held) -> None:
        with self._lock:
            if self._held.get(held.learner.id) is held:
                del self._held[held.learner.id]

    def _evict(self) -> None:
        with self._lock:
            size = sum(held.size for held in self._held.values())
            while size > self._limit and len(self._held) > 1:
                size -= self._held.popitem(last=False)[1].size

    # Learning the log again

    def unfinished(self) -> list[int]:
        """Returns the learners whose states were learned with another policy, or other slots, than is wanted now."""
        with self._lock:
            return [id for id, held in self._held.items() if held.wanted is not None]

    def rebuild(self, learner_id: int) -> bool:
        """Learns the log of a learner again with what is wanted now; returns whether its state was replaced.

        For a worker thread: the state of before is read and learns meanwhile. Raises what the policy raises; the state
        of before is then dropped, and ``read`` raises the same.
        """
        held = self._found(learner_id)
        wanted = None if held is None else held.wanted
        if held is None or wanted is None:
            return False
        started = time.perf_counter()
        try:
            state = relearned(self._store, held.learner, *wanted, go_on=lambda: held.wanted is wanted)
            with held.lock:
                if held.wanted is not wanted or self._found(learner_id) is not held:
                    return False
                _learn_rest(self._store, learner_id, state)
                state.number = max(state.number, held.state.number)  # the last events may be erased
                held.state, held.wanted, held.size, held.saved = state, None, size_of(state), 0
                held.seconds = time.perf_counter() - started
        except Exception:
            self._drop(held)
            raise
        self._evict()
        return True

    # Snapshots

    def due(self) -> list[int]:
        """Returns the learners whose events since the last snapshot would take long to learn again."""
        with self._lock:
            found = list(self._held.items())
        return [id for id, held in found if held.seconds > self._due_seconds and held.state.number > held.saved]

    def save(self, lease: Lease, learner_id: int, *, keep: int = KEPT) -> int:
        """Saves a snapshot of a state that is held, and deletes all but the newest ``keep``; returns its bytes.

        Returns 0 if the state is not held. Raises LostLease.
        """
        held = self._found(learner_id)
        if held is None:
            return 0
        with held.lock:
            state, reset, seconds = copied(held.state), held.learner.reset_number, held.seconds
        made = encode(state, reset)
        self._store.save_snapshot(lease, learner_id, state.number, SNAPSHOT_FORMAT, made)
        self._store.drop_snapshots(lease, learner_id, keep)
        with held.lock:
            held.saved, held.seconds = state.number, held.seconds - seconds
        return len(made)

    def cover(self, lease: Lease, learner: Learner, number: int, target: tuple[Any, int, int] | None) -> int:
        """Makes one snapshot of a learner that covers this number, so that events up to it can be deleted.

        ``target`` are policy, items and slots, as in ``read``; None if no arm uses the learner. Then nothing is known
        of the state but the number, and if an arm uses it again, it learns what is left of the log. Returns the bytes
        of the snapshot. Raises LostLease, or what the policy raises.
        """
        if target is not None:
            self.read(learner, *target, lambda state: None)
            return self.save(lease, learner.id, keep=1)
        self._store.save_snapshot(lease, learner.id, number, SNAPSHOT_FORMAT, b"")
        self._store.drop_snapshots(lease, learner.id, 1)
        return 0


def _started(learner: Learner, policy: Any, n_items: int, slots: int) -> LogState:
    """Returns a state in which nothing was learned since the last reset."""
    state = LogState(policy, n_items, slots)
    state.number = learner.reset_number
    return state


def _learn_rest(store: Store, learner_id: int, state: LogState, until: int | None = None) -> None:
    """Learns the settled events of a learner after the last one that was learned."""
    for events in store.learner_events(learner_id, state.number, until, BATCH):
        learn_events(state, events)


def relearned(
    store: Store,
    learner: Learner,
    policy: Any,
    n_items: int,
    slots: int,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> LogState:
    """Returns the state after what is left of the log of a learner since its last reset, without its snapshots.

    Blocks; stops early when ``go_on`` returns False. Raises StoreError, or what the policy raises.
    """
    newest = store.snapshot(learner.id)
    state = _started(learner, policy, n_items, slots)
    for events in store.learner_events(learner.id, state.number, None, BATCH):
        learn_events(state, events)
        if not go_on():
            break
    if newest is not None:  # the last events may be erased, and the next snapshot must be the newest
        state.number = max(state.number, newest.number)
    return state


class Verified(NamedTuple):
    """The result of learning the log of a learner again."""

    since: int  # the number of the snapshot from which that began; 0: from the first event, or the last reset
    pages: int  # that were learned again
    compared: tuple[int, ...]  # the numbers of the snapshots that were compared
    different: tuple[int, ...]  # of those that have other bits
    unreadable: tuple[int, ...]  # of those of other versions or another policy, and without arrays
    state: LogState | None  # after the last event; None if nothing is left from which to begin


def verify(store: Store, learner: Learner, policy: Any, n_items: int, slots: int) -> Verified:
    """Learns the settled log of a learner again, and compares the state with its snapshots bit for bit.

    Begins with the first event, or with the oldest snapshot if earlier events were erased. ``state`` is for those who
    compare it with a state in memory, by ``same_bits``. Blocks, and writes nothing; for a consistent result while the
    service runs, call it within ``store.consistent_reads()``. Raises StoreError, or what the policy raises.
    """
    kept = {one.number: one for one in (store.oldest_snapshot(learner.id), store.snapshot(learner.id)) if one}
    decoded = {
        number: decode(one.state, policy, n_items, slots, learner.reset_number) for number, one in sorted(kept.items())
    }
    unreadable = tuple(number for number, one in decoded.items() if one is None)
    since = 0
    state: LogState | None = _started(learner, policy, n_items, slots)
    if learner.erased_number > learner.reset_number:
        since = min(decoded, default=0)
        state = decoded.pop(since, None)
    if state is None:
        return Verified(since, 0, (), (), unreadable, None)
    before, different = state.pages, []
    compared = {number: one for number, one in decoded.items() if one is not None}
    for number, one in compared.items():
        _learn_rest(store, learner.id, state, number)
        if not same_bits(state, one):
            different.append(number)
    _learn_rest(store, learner.id, state)
    return Verified(since, state.pages - before, tuple(compared), tuple(different), unreadable, state)
