"""From counters to what is shown: ledger, marginals, and an immutable policy that lists are drawn from.

Whatever the policy, serving is the same: a matrix of marginals over the eligible items and the free slots, mixed with
uniform lists, and lists drawn exactly with it. A policy that follows a leader knows its marginals. One that only
decides is asked for 64 decisions, and serves a random one of them: a mixture whose marginals are known, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ... import policies
from ...core import Ledger
from ...geometry.uniform_mixture import mixed
from ...kernels import Floats, Ints
from ...policies import Policy
from ...policies.marginals import counted_marginals, entropy_of, known_marginals
from ..engine_types import Slot
from ..model import EVERYBODY, MOST_EVER, ONE, Eligibility, Item, Segment, Surface, SurfaceSettings
from .list_sampler import Wheel, make_wheel, spin

__all__ = [
    "Drawn",
    "Served",
    "Sums",
    "baseline_of",
    "describe",
    "eligibility_of",
    "marginals_of",
    "policy_of",
    "rehearse",
    "served",
    "sums_of",
]

DECISIONS = 64  # of a policy that does not know its marginals
PINNED = 1.0


class Sums(NamedTuple):
    """The counters of a segment as arrays: one row for every item there ever was, one column for every slot."""

    rounds: int
    revision: int
    loss: Ints
    shown: Ints
    clicked: Ints


def sums_of(segment: Segment | None, surface: Surface) -> Sums:
    """The counters of a segment, or of one nothing is known of yet."""
    n, m = len(surface.items), surface.settings.slots
    tables = np.zeros((3, n, m), np.int64)
    if segment is None:
        return Sums(0, -1, *tables)
    for table, counts in zip(tables, (segment.loss, segment.shown, segment.clicked)):
        for (item, slot), count in counts.items():
            if slot < m and item < n:
                table[item, slot] = count
    return Sums(segment.rounds, segment.revision, *tables)


class Drawn(NamedTuple):
    """A list: the item index and probability of every slot, and what is told of them."""

    items: tuple[int, ...]
    p: tuple[float, ...]
    slots: list[Slot]


class Served:
    """What a request is answered with until the next policy takes its place. Nothing of it changes."""

    __slots__ = (
        "_cells",
        "_pinned",
        "eligibility",
        "eligible",
        "free",
        "id",
        "learn",
        "marginals",
        "pinned",
        "rounds",
        "wheel",
    )

    def __init__(
        self,
        surface: Surface,
        eligible: Sequence[Item],
        free: Sequence[int],
        pins: Mapping[int, Item],
        marginals: Floats,
        rounds: int,
    ) -> None:
        self.eligible, self.free, self.marginals, self.rounds = tuple(eligible), tuple(free), marginals, rounds
        self.wheel: Wheel | None = make_wheel(marginals) if free else None
        self.learn, self.pinned = (sum(1 << slot for slot in slots) for slots in (free, pins))
        self.eligibility = eligibility_of(surface, eligible) if free else EVERYBODY
        self.id = self._digest(pins)
        self._pinned = sorted(
            (slot, item.index, Slot(slot, item.name, PINNED, True, False)) for slot, item in pins.items()
        )
        # What is told of a placement is made on first use, and then handed out again and again.
        self._cells: list[dict[int, tuple[int, float, Slot]]] = [{} for _ in free]

    def _digest(self, pins: Mapping[int, Item]) -> str:
        digest = blake2b(digest_size=12)
        told = ([i.index for i in self.eligible], self.free, sorted((s, i.index) for s, i in pins.items()))
        digest.update(msgspec.msgpack.encode(told))
        digest.update(self.marginals.tobytes())
        return digest.hexdigest()

    def draw(self, seed: bytes) -> Drawn:
        """The list for 16 bytes of seed."""
        rows = spin(self.wheel, seed) if self.wheel is not None else []
        cells = [known.get(row) or self._cell(k, row) for k, (known, row) in enumerate(zip(self._cells, rows))]
        for slot, index, told in self._pinned:
            cells.insert(slot, (index, PINNED, told))
        items, p, slots = zip(*cells)
        return Drawn(items, p, list(slots))

    def _cell(self, k: int, row: int) -> tuple[int, float, Slot]:
        item, p = self.eligible[row], float(self.marginals[row, k])
        cell = self._cells[k][row] = (item.index, p, Slot(self.free[k], item.name, p))
        return cell

    @property
    def entropy(self) -> float:
        """How undecided the lists are, in nats for every free slot: log n if uniform, 0 if always the same."""
        return entropy_of(self.marginals)


def policy_of(settings: SurfaceSettings) -> Policy:
    """The policy that a surface asks for; ValueError with the reason if there is no such, or it cannot serve."""
    made = policies.policy(settings.policy, **settings.policy_settings)
    n, m = settings.slots + 1, settings.slots
    positions = np.arange(m)
    listed = max(getattr(made, "ranking", None) or (0,)) + 1  # a fixed list speaks of items that must exist
    if listed > MOST_EVER:
        raise ValueError(f"ranking speaks of item {listed - 1}, and no surface can have so many items")
    made.part(np.arange(max(n, listed)), positions).resumed(Ledger(0, *np.zeros((3, max(n, listed), m))))
    return made


def eligibility_of(surface: Surface, eligible: Sequence[Item]) -> Eligibility:
    """Which items of a surface, removed ones included, could not be shown; or which could, if these are fewer."""
    present = tuple(sorted(item.index for item in eligible))
    absent = tuple(sorted({item.index for item in surface.items}.difference(present)))
    return Eligibility(absent=absent) if len(absent) <= len(present) else Eligibility(present=present)


def served(surface: Surface, policy: Policy, sums: Sums, eligible: Sequence[Item], pins: Mapping[int, Item]) -> Served:
    """The policy for these items, at the slots that no item is pinned to."""
    settings = surface.settings
    free = [slot for slot in range(settings.slots) if slot not in pins]
    rows = [item.index for item in eligible]
    if not free or len(rows) == 1:
        return Served(surface, eligible, free, pins, np.ones((len(rows), len(free))), sums.rounds)
    part = np.ix_(rows, free)
    known = Ledger(
        sums.rounds, centred(sums.loss[part]), *(t[part].astype(np.float64) for t in (sums.shown, sums.clicked))
    )
    x = marginals_of(policy.part(np.array(rows), np.array(free)), known)
    return Served(surface, eligible, free, pins, mixed(x, settings.floor, settings.minimum_exposure), sums.rounds)


def centred(loss: Ints) -> Floats:
    """Losses above the smallest at each slot, which is all that matters; subtracted while they are whole numbers."""
    return (loss - loss.min(axis=0)) / ONE


def marginals_of(policy: Policy, ledger: Ledger) -> Floats:
    """The marginals of the next decision of a policy that has learned what a ledger says; a fixed matter."""
    state = policy.resumed(ledger)
    known = known_marginals(policy, state)
    if known is not None:
        return known
    rng = np.random.default_rng(_seed(policy, ledger))
    return counted_marginals(policy, state, ledger.loss.shape, DECISIONS, rng)


def _seed(policy: Policy, ledger: Ledger) -> int:
    digest = blake2b(policy.label.encode(), digest_size=16)
    for part in (np.int64(ledger.rounds), ledger.loss, ledger.shown, ledger.clicked):
        digest.update(part.tobytes())
    return int.from_bytes(digest.digest(), "big")


def baseline_of(surface: Surface, eligible: Sequence[Item], pins: Mapping[int, Item]) -> Drawn:
    """The page's own order, for visitors who are held out: certain, and nothing is learned from it."""
    place = {name: k for k, name in enumerate(surface.settings.baseline)}
    order = sorted(eligible, key=lambda item: (place.get(item.name, math.inf), item.index))
    rest = iter(order)
    shown = [pins.get(slot) or next(rest) for slot in range(surface.settings.slots)]
    slots = [Slot(slot, item.name, PINNED, slot in pins, False) for slot, item in enumerate(shown)]
    return Drawn(tuple(item.index for item in shown), (PINNED,) * len(shown), slots)


def describe(policy: Served) -> dict[str, Any]:
    """A policy as it is kept, for whoever asks later why something was shown."""
    return {
        "items": [item.name for item in policy.eligible],
        "slots": list(policy.free),
        "x": policy.marginals.tolist(),
        "rounds": policy.rounds,
        "entropy": policy.entropy,
    }


def rehearse() -> None:
    """Compile what every request needs, so that the first visitor does not wait for it."""
    settings = SurfaceSettings(slots=2)
    items = tuple(Item(name=str(k), index=k, state="active", added_at=0, changed_at=0) for k in range(3))
    surface = Surface(id=0, name="", version=0, settings=settings, items=items, created_at=0, changed_at=0)
    cells = np.arange(6).reshape(3, 2)
    served(surface, policy_of(settings), Sums(9, 0, ONE * cells, cells, cells), items, {}).draw(bytes(16))
