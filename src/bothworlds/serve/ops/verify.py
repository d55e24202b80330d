"""Verifying a store: its settled log, learned again, must give what its snapshots have. Learning the log again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...policies.logged_pages import LogState
from ...progress import ReportProgress
from ..engine.served import Served
from ..engine.states import SNAPSHOT_FORMAT, States, Target, decode, encode, learn_rest, new_state, relearned, same_bits
from ..events import Learner
from ..stores import Store

OWNER = "rebuild"  # of the lease
LEASE_SECONDS = 3600.0


class Verification(msgspec.Struct, frozen=True):
    """What was learned again, and the differences that were found, in words."""

    learners: int = 0
    pages: int = 0  # learned again
    snapshots: int = 0  # compared
    unreadable: tuple[str, ...] = ()  # snapshots of other versions: the service learns the log again instead
    differences: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every snapshot that could be compared has the same bits as the log gives."""
        return not self.differences


def verify(store: Store, progress: ReportProgress = lambda amount: None) -> Verification:
    """Learns the log of every learner in use again, and compares the states with the snapshots, bit for bit.

    Begins with the first event, or with the oldest snapshot where earlier events were deleted. A service may run
    meanwhile. ``progress`` is called with numbers of learners. Blocks, and writes nothing. Raises StoreError.
    """
    learners = pages = snapshots = 0
    unreadable: list[str] = []
    differences: list[str] = []
    with store.consistent_reads():
        for target, learner, name in _learners_in_use(store):
            progress(1)
            learners += 1
            try:
                result = verify_learner(store, learner, target)
            except ValueError as error:  # of the policy
                differences.append(f"{name}: its log cannot be learned: {error}")
                continue
            pages += result.pages
            snapshots += len(result.compared)
            unreadable += [f"{name}: the snapshot after event {number}" for number in result.unreadable]
            differences += [f"{name}: the snapshot after event {number} differs" for number in result.different]
    return Verification(learners, pages, snapshots, tuple(unreadable), tuple(differences))


class LearnerVerification(NamedTuple):
    """The result of learning the log of a learner again."""

    since: int  # the number of the snapshot from which that began; 0: from the first event, or the last reset
    pages: int  # that were learned again
    compared: tuple[int, ...]  # the numbers of the snapshots that were compared
    different: tuple[int, ...]  # of those that have other bits
    unreadable: tuple[int, ...]  # of those of other versions or another policy, and without arrays
    state: LogState | None  # after the last event; None if nothing is left from which to begin


def verify_learner(store: Store, learner: Learner, target: Target) -> LearnerVerification:
    """Learns the settled log of a learner again, and compares the state with its snapshots bit for bit.

    Begins with the first event, or with the oldest snapshot if earlier events were erased. ``state`` is for those who
    compare it with a state in memory, by ``same_bits``. Blocks, and writes nothing; for a consistent result while the
    service runs, call it within ``store.consistent_reads()``. Raises StoreError, or what the policy raises.
    """
    kept = {one.number: one for one in (store.snapshot(learner.id, oldest=True), store.snapshot(learner.id)) if one}
    decoded = {number: decode(one.state, target, learner.reset_number) for number, one in sorted(kept.items())}
    unreadable = tuple(number for number, one in decoded.items() if one is None)
    since = 0
    state: LogState | None = new_state(learner, target)
    if learner.erased_number > learner.reset_number:
        since = min(decoded, default=0)
        state = decoded.pop(since, None)
    if state is None:
        return LearnerVerification(since, 0, (), (), unreadable, None)
    before, different = state.pages, []
    compared = {number: one for number, one in decoded.items() if one is not None}
    for number, one in compared.items():
        learn_rest(store, learner.id, state, number)
        if not same_bits(state, one):
            different.append(number)
    learn_rest(store, learner.id, state)
    return LearnerVerification(since, state.pages - before, tuple(compared), tuple(different), unreadable, state)


def rebuild(store: Store, surface: str | None = None, progress: ReportProgress = lambda amount: None) -> Verification:
    """Learns what is left of the log again, and replaces all snapshots by the result; of one surface, or of all.

    What was learned from deleted events is forgotten. No service may use the store: open it ``alone``. Blocks; each
    learner is durable when ``progress`` is called. Raises StoreError, ValueError for an unknown surface, or what a
    policy raises.
    """
    if surface is not None and all(one.name != surface for one in store.surfaces()):
        raise ValueError(f"there is no surface {surface!r}")
    learners = pages = snapshots = 0
    lease = store.acquire(OWNER, LEASE_SECONDS)
    if lease is None:
        raise ValueError("a service uses this store: stop it first")
    try:
        for target, learner, _ in _learners_in_use(store, surface):
            state = relearned(store, learner, target)
            made = encode(state, learner.reset_number)
            store.save_snapshot(lease, learner.id, state.number, SNAPSHOT_FORMAT, made)
            store.drop_snapshots(lease, learner.id, 1)
            learners, pages, snapshots = learners + 1, pages + state.pages, snapshots + 1
            progress(1)
    finally:
        store.release(lease)
    return Verification(learners, pages, snapshots)


def _learners_in_use(store: Store, surface: str | None = None) -> Iterator[tuple[Target, Learner, str]]:
    """Yields every learner that an arm of a surface uses, with what it learns with, and its name in words."""
    states = States(store)
    for one in store.surfaces():
        if surface is None or one.name == surface:
            served = Served(one, states)
            for learner in store.learners(one.id):
                if (known := served.add(learner)) is not None and not served.fault:
                    arm = next(arm for arm, number in reversed(served.numbers.items()) if number == learner.number)
                    yield served.target(known), learner, f"surface {one.name!r}, arm {arm!r}"
