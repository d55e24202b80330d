"""States: what each learner has learned from its settled events, kept in memory while it is used, and in snapshots.

A state is a function of the settled log: ``LogState`` learns the events of a learner in the order of their numbers,
here as in ``Ranker.from_export``. Nothing else changes it. Every process holds states by the same replay, and learns
newly settled events as they come. A snapshot, which the holder of the lease saves, spares learning everything again;
one of another version, policy or shape is of no use, and the state is learned from the log. So a restart, a process
that follows, a change of policy and ``verify`` are one mechanism.
"""

from __future__ import annotations

import platform
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numba
import numpy as np

from ... import __version__
from ...core import copy_state, is_work, leaves, with_leaves
from ...labels import LabelTable
from ...policies.logged_pages import LoggedPage, LogLabels, LogState, policy_name
from ...policies.pages import has_parts
from ..events import Event, Learner, Lease
from ..outcomes import is_learned, rewards_of
from ..stores import Store

SNAPSHOT_FORMAT = "bothworlds state 1"
LEVEL = 1  # of zlib
SLICE = 0.001  # seconds for which a policy in plain Python learns before other threads get a turn
COUNTS = ("shown", "clicked", "loss")
NUMBERS = ("number", "pages", "skipped")
# What the bits of a state depend on, beside the log.
VERSIONS = (__version__, np.__version__, numba.__version__, platform.machine())
LIMIT = 128 << 20  # bytes of states that are kept
DUE_SECONDS = 0.5  # a snapshot is due when learning everything since the last one would take longer
READ_SECONDS = 1e-5  # to read an event from the store
BATCH = 250  # events learned at a time, so that other threads get a turn
KEPT = 2  # snapshots of a learner

T = TypeVar("T")


def page_of(event: Event) -> LoggedPage:
    """Returns a settled event as a page to learn; its mask is 0 if nothing is learned from it."""
    listed = event.listed
    return LoggedPage(
        event.number or 0,
        event.n,
        listed.items,
        listed.p,
        rewards_of(event),
        listed.learn if is_learned(event) else 0,
        listed.absent,
        listed.note,
        listed.policy_id.partition(":")[0] if listed.note else "",
        event.context,
    )


def learn_events(state: LogState, events: Sequence[Event]) -> None:
    """Learns from settled events of one learner, which are in the order of their numbers; any thread.

    All pages of a compiled policy are learned by one kernel, which other threads do not wait for. A policy in plain
    Python learns for a millisecond at a time. Raises ValueError or what the policy raises; the state is then of no use.
    Raises UnknownItems, and learns nothing, if the state does not know the labels of all items.
    """
    if state.labels is not None and any(event.n > max(2, state.labels.rows.shape[1]) for event in events):
        raise UnknownItems("another process has added items, whose labels are not known here yet")
    pages = [page_of(event) for event in events]
    started = time.monotonic()
    for k, page in enumerate(pages):
        if state.is_compiled:
            state.learn(pages[k:])
            return
        state.learn([page])
        if time.monotonic() - started > SLICE:
            time.sleep(0)
            started = time.monotonic()


class UnknownItems(ValueError):
    """Items are newer than the labels that a state has of them."""


class Target(NamedTuple):
    """With what a learner learns: its policy, and the items, slots and labels of its surface."""

    policy: Any
    n_items: int
    slots: int
    labels: LogLabels | None = None

    def is_of(self, state: LogState) -> bool:
        """Returns whether a state was learned with this; a state with parts grows with the number of items."""
        if policy_label(state.policy) != policy_label(self.policy) or state.shape.n_positions != self.slots:
            return False
        if (state.labels or self.labels) and not (self.labels and self.labels.agrees(state.labels, len(state.loss))):
            return False
        return state.shape.n_items == self.n_items or has_parts(self.policy)


class _Held:
    """A state in memory; everything is read and written under its lock."""

    def __init__(self, learner: Learner, state: LogState, saved: int, seconds: float) -> None:
        self.lock = threading.RLock()
        self.learner, self.state, self.size = learner, state, size_of(state)
        self.saved, self.seconds = saved, seconds  # the number of the last snapshot, and to learn the events since
        self.wanted: Target | None = None  # with what the log is to be learned again


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

    def read(self, learner: Learner, target: Target, function: Callable[[LogState], T]) -> T:
        """Returns what ``function`` returns for the state of a learner; it copies what it keeps, and changes nothing.

        A state that is not held is made first: from the last snapshot and the events since. If the learner was reset
        since, it starts again at once. If the state was learned with another policy, slots or labels, the function gets
        it as it is, and ``unfinished`` names the learner until ``rebuild`` has learned the log again.

        Raises what the policy or the function raises.
        """
        held = self._found(learner.id)
        if held is not None and held.learner.reset_number < learner.reset_number:
            self._drop(held)
            held = None
        held = held or self._loaded(learner, target)
        with held.lock:
            held.wanted = None if target.is_of(held.state) else target
            if held.wanted is not None and held.state.number <= held.learner.reset_number:  # nothing is to be learned
                held.state, held.wanted = new_state(held.learner, target), None
            if held.wanted is None and target.labels is not None:
                held.state.labels = target.labels  # with those of new items
            return function(held.state)

    def learn(self, events: Sequence[Event]) -> dict[int, Exception]:
        """Learns newly settled events, by number within a surface; states that are not held will find them in the log.

        If a policy fails, its state is dropped, and the other learners learn; returns the errors by learner.
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
                except UnknownItems:
                    self._drop(held)  # read again with the labels of all items
                except Exception as error:
                    self._drop(held)
                    failed[learner_id] = error
        return failed

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

    def _loaded(self, learner: Learner, target: Target) -> _Held:
        """Makes a state and holds it; another thread that wants the same one waits, and nobody else does."""
        with self._lock:
            loading = self._loading.setdefault(learner.id, threading.Lock())
        try:
            with loading:
                return self._found(learner.id) or self._load(learner, target)
        finally:
            with self._lock:
                self._loading.pop(learner.id, None)

    def _load(self, learner: Learner, target: Target) -> _Held:
        started = time.perf_counter()
        newest = self._store.snapshot(learner.id)
        state = None if newest is None else decode(newest.state, target, learner.reset_number)
        saved = 0 if state is None else state.number
        if state is None:
            state = relearned(self._store, learner, target)
        else:
            learn_rest(self._store, learner.id, state)
        held = _Held(learner, state, saved, time.perf_counter() - started)
        with held.lock:
            with self._lock:
                self._held[learner.id] = held
            try:  # events that were settled meanwhile, for which ``learn`` did not find this state
                learn_rest(self._store, learner.id, state)
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
            state = relearned(self._store, held.learner, wanted, go_on=lambda: held.wanted is wanted)
            with held.lock:
                if held.wanted is not wanted or self._found(learner_id) is not held:
                    return False
                learn_rest(self._store, learner_id, state)
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
            packed, number, seconds = _packed(held.state, held.learner.reset_number), held.state.number, held.seconds
        made = zlib.compress(packed, LEVEL)
        self._store.save_snapshot(lease, learner_id, number, SNAPSHOT_FORMAT, made)
        self._store.drop_snapshots(lease, learner_id, keep)
        with held.lock:
            held.saved, held.seconds = number, held.seconds - seconds
        return len(made)

    def cover(self, lease: Lease, learner: Learner, number: int) -> None:
        """Makes a snapshot of a learner that no arm uses, so that events up to this number can be deleted.

        Nothing is known of the state but the number: if an arm uses it again, it learns what is left of the log. Raises
        LostLease.
        """
        self._store.save_snapshot(lease, learner.id, number, SNAPSHOT_FORMAT, b"")
        self._store.drop_snapshots(lease, learner.id, 1)


def new_state(learner: Learner, target: Target) -> LogState:
    """Returns a state in which nothing was learned since the last reset."""
    state = LogState(*target)
    state.number = learner.reset_number
    return state


def learn_rest(store: Store, learner_id: int, state: LogState, until: int | None = None) -> None:
    """Learns the settled events of a learner after the last one that was learned."""
    for events in store.learner_events(learner_id, state.number, until, BATCH):
        learn_events(state, events)


def relearned(store: Store, learner: Learner, target: Target, *, go_on: Callable[[], bool] = lambda: True) -> LogState:
    """Returns the state after what is left of the log of a learner since its last reset, without its snapshots.

    Blocks; stops early when ``go_on`` returns False. Raises StoreError, or what the policy raises.
    """
    newest = store.snapshot(learner.id)
    state = new_state(learner, target)
    for events in store.learner_events(learner.id, state.number, None, BATCH):
        learn_events(state, events)
        if not go_on():
            break
    if newest is not None:  # the last events may be erased, and the next snapshot must be the newest
        state.number = max(state.number, newest.number)
    return state


# Snapshots


def encode(state: LogState, reset: int = 0) -> bytes:
    """Returns a snapshot of the state of a learner that was reset at this number.

    If the state of the policy is not made of arrays, numbers and lists of numbers, ``decode`` finds no state in it.
    """
    return zlib.compress(_packed(state, reset), LEVEL)


def decode(snapshot: bytes, target: Target, reset: int = 0) -> LogState | None:
    """Returns the state of a snapshot, or None if it is not one of this policy, shape, labels, reset and version.

    The next events are learned as if the state had never been saved, bit for bit. A damaged snapshot gives None.
    """
    try:
        header, known, saved = msgspec.msgpack.decode(zlib.decompress(snapshot))
        if saved is None or header != _header(target, reset):
            return None
        return _restored(target, known, {path: _leaf(*leaf) for path, leaf in saved.items()})
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return None


def size_of(state: LogState) -> int:
    """Returns about how many bytes of memory a state takes."""
    return sum(getattr(leaf, "nbytes", 32) for _, leaf in leaves(state.state)) + 3 * state.loss.nbytes + 1024


def same_bits(one: LogState, other: LogState) -> bool:
    """Returns whether two states are equal bit for bit, but for work arrays; False if they are not made of arrays."""
    ours = _plain(one)
    return ours is not None and ours == _plain(other)


def policy_label(policy: Any) -> str:
    """Returns the name of a policy with its settings: states are of the same policy if this is the same."""
    return getattr(policy, "label", "") or policy_name(policy)


def _packed(state: LogState, reset: int) -> bytes:
    known = {} if state.visitor is None else state.visitor.known
    header = _header(Target(state.policy, *state.shape, state.labels), reset)
    return msgspec.msgpack.encode((header, known, _plain(state)))


def _header(target: Target, reset: int) -> bytes:
    """Returns what must be equal for a snapshot to be of use."""
    policy, n_items, slots, labels = target
    shape = (0 if has_parts(policy) else n_items, slots)  # a state with parts grows
    declared = None if labels is None else (labels.visitor, labels.item_table.declaration)
    return msgspec.msgpack.encode((SNAPSHOT_FORMAT, VERSIONS, policy_label(policy), shape, declared, reset))


def _whole(state: LogState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in (*NUMBERS, *COUNTS, "state")}


def _plain(state: LogState) -> dict[str, tuple[bool, str, tuple[int, ...], bytes]] | None:
    """Returns everything in a state but work arrays by path: whether it is an array, its type, shape and bytes.

    None if it is not made of arrays, numbers and lists of numbers.
    """
    found = {}
    for path, leaf in leaves(_whole(state)):
        if not is_work(path):
            array, is_array = np.asarray(leaf), isinstance(leaf, (np.ndarray, np.generic))
            if array.dtype.kind not in "biufc" or not (is_array or array.tolist() == leaf):
                return None
            found[path] = is_array, array.dtype.str, array.shape, array.tobytes()
    return found


def _leaf(is_array: bool, dtype: str, shape: Sequence[int], content: bytes) -> Any:
    array = np.frombuffer(content, dtype).reshape(shape).copy()
    return array if is_array else array.tolist()


def _restored(target: Target, known: dict[str, list[str]], found: dict[str, Any]) -> LogState | None:
    """Returns the state with these leaves, or None if they are not those of a state of the policy and its labels."""
    state = LogState(*target)
    if state.labels is not None:
        state.visitor = LabelTable(state.labels.visitor, "labels", known)
    if any(path.startswith("state") for path in found):  # else nothing was learned
        state.state = state.new(len(found["loss"]))
    fresh = dict(leaves(_whole(state)))
    if found.keys() != {path for path in fresh if not is_work(path)}:
        return None
    if any(not np.array_equal(found[path], fresh[path]) for path in found if path.startswith("state.labels.")):
        return None
    for name, value in with_leaves(_whole(state), fresh | found).items():
        setattr(state, name, value)
    state.state = copy_state(state.state)
    return state
