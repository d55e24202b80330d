"""Verifying a store: its settled log, learned again, must give what its snapshots have. Learning the log again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...progress import ReportProgress
from ..engine.replay import States, relearned
from ..engine.replay import verify as verify_learner
from ..engine.served import Served
from ..engine.states import SNAPSHOT_FORMAT, encode
from ..events import Learner
from ..model import segment_words
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
        for served, learner, name in _learners_in_use(store):
            progress(1)
            learners += 1
            try:
                result = verify_learner(store, learner, served.policies[learner.number], *served.shape)
            except ValueError as error:  # of the policy
                differences.append(f"{name}: its log cannot be learned: {error}")
                continue
            pages += result.pages
            snapshots += len(result.compared)
            unreadable += [f"{name}: the snapshot after event {number}" for number in result.unreadable]
            differences += [f"{name}: the snapshot after event {number} differs" for number in result.different]
    return Verification(learners, pages, snapshots, tuple(unreadable), tuple(differences))


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
        for served, learner, _ in _learners_in_use(store, surface):
            state = relearned(store, learner, served.policies[learner.number], *served.shape)
            made = encode(state, learner.reset_number)
            store.save_snapshot(lease, learner.id, state.number, SNAPSHOT_FORMAT, made)
            store.drop_snapshots(lease, learner.id, 1)
            learners, pages, snapshots = learners + 1, pages + state.pages, snapshots + 1
            progress(1)
    finally:
        store.release(lease)
    return Verification(learners, pages, snapshots)


def _learners_in_use(store: Store, surface: str | None = None) -> Iterator[tuple[Served, Learner, str]]:
    """Yields every learner that an arm of a surface uses, with the surface and the name of the learner in words."""
    states = States(store)
    for one in store.surfaces():
        if surface is None or one.name == surface:
            served = Served(one, states)
            for learner in store.learners(one.id):
                if learner.number in served.policies:
                    arm = next(arm for arm, number in reversed(served.numbers.items()) if number == learner.number)
                    yield served, learner, f"surface {one.name!r}, {segment_words(learner.segment)}, arm {arm!r}"
