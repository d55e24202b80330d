"""GRAB: hill climbing among lists, guided by upper bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import kl_upper, round_level
from .parts.counts import Counts, record
from .parts.epochs import Epochs, make_epochs, new_epoch
from .parts.placement import PlacementWork, make_placement_work, place_best, sort_largest
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import ROUNDS, Forgetting, choice, whole

BY_HORIZON, BY_LEADER = "log T", "log t"
PROBES = 8  # slots in which a list may be stored
START, ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
SHIFT_A, SHIFT_B, SHIFT_C = np.uint64(13), np.uint64(7), np.uint64(17)  # of xorshift64


class FrequentLists(NamedTuple):
    """A hash table of fixed size: there are too many lists to count them all, but few occur often.

    A list has its slot among a few neighbouring ones; if all are taken, it replaces the list with the smallest count.
    """

    keys: NDArray[np.uint64]  # (slots,) 0 in an empty slot
    times: Floats  # (slots,) counts


class Work(NamedTuple):
    order: Ints  # (n_items,) positions by average, then the unused items
    gains: Floats  # (n_items - 1,) of the neighbours
    values: Floats  # (n_positions,)
    placement: PlacementWork  # its scores are the averages


class State(NamedTuple):
    shape: Shape
    by_leader: bool
    memory: float  # rounds that are remembered, which limit the level
    cycle: int
    counts: Counts
    plan: Epochs
    leader: Ints  # (n_positions,)
    led: Floats  # (1,) number of rounds in which the present leader was leader
    leaders: FrequentLists  # number of rounds in which each list was leader
    stream: Stream
    work: Work


@dataclass(frozen=True, kw_only=True)
class Grab(Forgetting):
    r"""Shows the best list by averages, or the one of its n - 1 neighbours with the largest optimistic gain.

    The leader is the list with the largest sum of averages. Its neighbours exchange the items of two positions that are
    next to each other in the order of averages, or put an unused item at the last of them. Under the position-based
    model, every list that is not the best has a better neighbour, so only neighbours have to be explored. One in
    ``cycle`` rounds of a leader shows the leader itself, the others the neighbour with the largest gain above 0.

    .. math::

        \text{leader} = \arg\max \sum_j \hat p_{i_j j}, \qquad
        \text{gain} = U_{i_l k} + U_{i_k l} - U_{i_k k} - U_{i_l l}, \qquad
        U_{ij} = \max\{q : N_{ij} \, kl(\hat p_{ij}, q) \le f\}

    An unused item has :math:`U = 0`, and a pair that was never shown has :math:`\hat p = 0` and :math:`U = 1`. The
    leader is computed when learning, with ties broken by the random stream of the state; the very first list is
    uniformly random, and is the first leader. The number of rounds of a leader is stored for about a thousand lists;
    the least frequent ones are replaced. Without a horizon, T starts at 1024 and doubles when it is reached.

    Requires: the horizon, for the level :math:`\log T`.
    Guarantee: :math:`O(\frac{n}{\Delta} \log T)` with steady users.
    Known failure: without forgetting it is slow to notice that users have changed.

    Parameters
    ----------
    level
        f: "log T", as in the authors' experiments, or "log t" for :math:`\log t + 3 \log \log t` with t the number of
        rounds of the present leader, as in the proof.
    cycle
        Number of rounds of which one shows the leader; None for n.
    horizon
        T; None if it is not known.

    Examples
    --------
    A new leader is shown in its first round:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy, rng = bothworlds.policy("grab", horizon=100), np.random.default_rng(0)
    >>> state = policy.init(4, 2)
    >>> state = policy.learn(state, policy.decide(state, rng), [1, 1])
    >>> state.led.tolist()
    [1.0]
    >>> state = policy.learn(state, policy.decide(state, rng), [0, 0])
    >>> bool(state.led[0] == 2.0 or (policy.decide(state, rng).ranking == state.leader).all())
    True

    References
    ----------
    Gauthier, Gaudel, Fromont, Lompo: Parametric graph for unimodal ranking bandit, ICML 2021.
    """

    level: str = choice(BY_HORIZON, BY_LEADER)
    cycle: int | None = whole(None, 1, 10**9)
    horizon: int | None = whole(None, 1, ROUNDS)

    name = "grab"
    learned_leaves = None  # a part of its leader is not the leader of the part
    needs = ("horizon",)

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            by_leader=self.level == BY_LEADER,
            memory=self.memory(),
            cycle=n if self.cycle is None else int(self.cycle),
            counts=self.counts(shape),
            plan=make_epochs(self.horizon),
            leader=np.zeros(m, np.int64),
            led=np.zeros(1),
            leaders=make_frequent_lists(),
            stream=make_stream(n, m),
            work=Work(np.zeros(n, np.int64), np.zeros(n - 1), np.zeros(m), make_placement_work(n, m)),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    for j in range(ranking.size):
        propensity[j] = math.nan
    if state.counts.learned[0] == 0:
        update_leader(state, rng, ranking)
        return
    for j in range(ranking.size):
        ranking[j] = state.leader[j]
    if state.led[0] % state.cycle > 0.0:
        _move_to_neighbour(state, rng, ranking)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    leader = state.leader
    if state.counts.learned[0] == 0:
        for j in range(ranking.size):
            leader[j] = ranking[j]
    set_count(state.leaders, leader, state.led[0] + 1.0)
    record(state.counts, ranking, clicks)
    new_epoch(state.plan)
    absorb(state.stream, ranking)
    update_leader(state, state.stream, leader)
    state.led[0] = count_of(state.leaders, leader)


@inner_kernel
def update_leader(state: State, source: Any, leader: Ints) -> None:
    """Fill in the list with the largest sum of averages."""
    shown, clicked = state.counts.shown, state.counts.clicked
    for i in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            state.work.placement.scores[i, j] = clicked[i, j] / shown[i, j] if shown[i, j] > 0.0 else 0.0
    place_best(state.work.placement.scores, source, leader, state.work.placement)


@inner_kernel
def _move_to_neighbour(state: State, rng: np.random.Generator, ranking: Ints) -> None:
    """Replace the leader by the neighbour with the largest optimistic gain, if it is above 0."""
    m, order, neighbours = ranking.size, state.work.order, state.work.placement.items
    _sort_positions(state, rng)
    _compute_gains(state)
    sort_largest(state.work.gains, neighbours, 1, rng)
    chosen = neighbours[0]
    if state.work.gains[chosen] <= 0.0:
        return
    if chosen < m - 1:
        a, b = order[chosen], order[chosen + 1]
        ranking[a], ranking[b] = ranking[b], ranking[a]
    else:
        ranking[order[m - 1]] = order[chosen + 1]


@inner_kernel
def _sort_positions(state: State, rng: np.random.Generator) -> None:
    """Fill ``order`` with the positions in the order of the leader's averages, then the unused items."""
    m, leader, order = state.leader.size, state.leader, state.work.order
    used = state.work.placement.items
    for i in range(used.size):
        used[i] = 0
    for j in range(m):
        used[leader[j]] = 1
        n = state.counts.shown[leader[j], j]
        state.work.values[j] = state.counts.clicked[leader[j], j] / n if n > 0.0 else 0.0
    sort_largest(state.work.values, order, m, rng)
    k = m
    for i in range(used.size):
        if used[i] == 0:
            order[k] = i
            k += 1


@inner_kernel
def _compute_gains(state: State) -> None:
    """Fill ``gains``: of exchanging the k-th and the next position, and of every unused item at the last position."""
    m, leader, order, level = state.leader.size, state.leader, state.work.order, _level(state)
    own = _upper(state, leader[order[0]], order[0], level)
    for k in range(m - 1):
        a, b = order[k], order[k + 1]
        next_own = _upper(state, leader[b], b, level)
        state.work.gains[k] = _upper(state, leader[b], a, level) + _upper(state, leader[a], b, level) - own - next_own
        own = next_own
    for k in range(m - 1, state.work.gains.size):
        state.work.gains[k] = _upper(state, order[k + 1], order[m - 1], level) - own


@inner_kernel
def _level(state: State) -> float:
    if state.by_leader:
        return round_level(min(state.led[0] + 1.0, state.memory))
    return math.log(min(state.plan.horizon[0], state.memory))


@inner_kernel
def _upper(state: State, i: int, j: int, level: float) -> float:
    n = state.counts.shown[i, j]
    return kl_upper(min(state.counts.clicked[i, j] / n, 1.0), n, level) if n > 0.0 else 1.0


def make_frequent_lists(slots: int = 1024) -> FrequentLists:
    """Return an empty table; ``slots`` is a power of two."""
    return FrequentLists(np.zeros(slots, np.uint64), np.zeros(slots))


@inner_kernel
def count_of(table: FrequentLists, ranking: Ints) -> float:
    """Return the count of a list; 0 if it is not in the table."""
    key = _key(ranking)
    slot = _slot(table, key)
    return table.times[slot] if table.keys[slot] == key else 0.0


@inner_kernel
def set_count(table: FrequentLists, ranking: Ints, times: float) -> None:
    """Store the count of a list, in place of the smallest count where there is no free slot."""
    key = _key(ranking)
    slot = _slot(table, key)
    table.keys[slot] = key
    table.times[slot] = times


@inner_kernel
def _key(ranking: Ints) -> Any:
    """Return a 64-bit hash of a list, never 0."""
    key = START
    for j in range(ranking.size):
        key ^= np.uint64(ranking[j] + 1)
        for _ in range(3):
            key ^= key << SHIFT_A
            key ^= key >> SHIFT_B
            key ^= key << SHIFT_C
    return key | ONE


@inner_kernel
def _slot(table: FrequentLists, key: Any) -> Any:
    """Return the slot of a list or, if it has none, the slot with the smallest count that it may replace."""
    mask = np.uint64(table.keys.size - 1)
    least = np.int64((key >> ONE) & mask)
    for k in range(PROBES):
        slot = np.int64(((key >> ONE) + np.uint64(k)) & mask)
        if table.keys[slot] == key:
            return slot
        if table.times[slot] < table.times[least]:
            least = slot
    return least
