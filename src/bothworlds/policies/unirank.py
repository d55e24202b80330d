"""UniRank: the leader among ordered partitions, and exploration of its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns, notes
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import kl, kl_upper
from .parts.blocks import Blocks, arrange, draw_list, make_blocks, note_sizes, one_block
from .parts.duels import Duels, forget_duels, make_duels, record_duels
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import Planning, number


class Work(NamedTuple):
    worse: NDArray[np.bool_]  # (n, n)
    behind: Ints  # (n,)


class State(NamedTuple):
    shape: Shape
    exploration: float
    margin: float
    epochs: Epochs
    duels: Duels
    leader: Blocks  # the partition by the majority of duels
    explored: Blocks  # the partition from which lists are drawn
    stream: Stream
    work: Work


@dataclass(frozen=True, kw_only=True)
class UniRank(Planning):
    r"""Orders items by the majority of duels, and merges neighbouring blocks while their order is uncertain.

    The leader is the ordered partition in which an item is above another if it has won more of their duels, by a small
    margin. Two neighbouring blocks of the leader are merged, that is, shown in random order as one block, as long as
    some item of the lower one may be better than one of the upper. In contrast to TopRank the order is not final: it
    follows later duels.

    .. math::

        j \text{ is below } i \text{ where } \;
        \hat s_{ji} + \sqrt{\frac{\log \log (t + 3)}{N_{ij}}} < 0, \qquad
        \hat s_{ji} = \frac{1}{N_{ij}} \sum_t (c_{tj} - c_{ti}), \quad N_{ij} = \sum_t |c_{ti} - c_{tj}|

    and blocks are merged, from the top, where for some i of the upper and j of the lower one

    .. math::

        \max \left\{ q : N_{ij} \, kl \left( \frac{1 + \hat s_{ji}}{2}, q \right) \le \log T \right\} > \frac 1 2

    A merged block is not merged again. The block at the end of the page gets one item only, the one with the largest
    such bound in the first block below that has any. Of the variants in the authors' code this is the one that merges
    as much as possible from the top, greedily for items that are not on the page, with log T for a known horizon. The
    published bound uses the number of rounds of the leading partition instead of T, for which all partitions would have
    to be stored.

    Requires: the horizon (or the doubling trick is used), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{n}{\Delta} \log T)` with steady users, in several click models, if no two items are
    equally attractive.
    Known failure: where positions are read from the other end it sorts the page in reverse; and it corrects an order
    only after as many duels as have established it. Its state has no parts: ties between the items that may be added to
    the page are broken at random, so that the blocks from which a page was drawn do not follow from what was learned.

    Parameters
    ----------
    exploration
        The factor of :math:`\log T`.
    margin
        The factor of :math:`\log \log (t + 3)`; 0 follows the majority without a margin.

    Examples
    --------
    If users click on one item and on nothing else, it is soon alone at the top:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("unirank", horizon=100)
    >>> state, rng = policy.init(4, 2), np.random.default_rng(0)
    >>> for _ in range(60):
    ...     decision = policy.decide(state, rng)
    ...     state = policy.learn(state, decision, decision.ranking == 2)
    >>> decision.ranking[0], decision.propensity
    (np.int64(2), array([1.        , 0.33333333]))

    References
    ----------
    Gauthier, Gaudel, Fromont: UniRank: unimodal bandit algorithms for online ranking, ICML 2022.
    """

    exploration: float = number(1.0, 1e-6, 1e6)
    margin: float = number(1.0, 0.0, 1e6)

    name = "unirank"
    needs = ("horizon", "order")

    def note_size(self, shape: Shape) -> int:
        """Return the number of positions: it remembers the size of the block at each."""
        return shape.n_positions

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            exploration=float(self.exploration),
            margin=float(self.margin),
            epochs=self.epochs(),
            duels=make_duels(n, m),
            leader=make_blocks(n),
            explored=make_blocks(n),
            stream=make_stream(n, m),
            work=Work(np.zeros((n, n), np.bool_), np.zeros(n, np.int64)),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    draw_list(state.explored, rng, ranking, propensity)


@notes(State)
def note(state: State, ranking: Ints, note: Floats) -> None:
    note_sizes(state.explored, note)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats) -> None:
    if new_epoch(state.epochs):
        forget_duels(state.duels)
        one_block(state.leader)
        one_block(state.explored)
        return
    absorb(state.stream, ranking)
    record_duels(state.duels, state.explored, ranking, clicks, note)
    compare(state)
    arrange(state.leader, state.work.worse, state.work.behind, ranking[:0])
    explore(state)


@inner_kernel
def compare(state: State) -> None:
    """Fill ``worse``: the order by the majority of duels, with a margin."""
    wins, n = state.duels.wins, state.shape.n_items
    level = state.margin * math.log(math.log(state.epochs.rounds[0] + 3.0))
    for i in range(n):
        for j in range(i):
            lead, fought = float(wins[i, j] - wins[j, i]), float(wins[i, j] + wins[j, i])
            beyond = lead * lead > fought * level
            state.work.worse[i, j] = beyond and lead > 0.0
            state.work.worse[j, i] = beyond and lead < 0.0


@inner_kernel
def explore(state: State) -> None:
    """Merge neighbouring blocks of the leader where they may be in the wrong order."""
    leader, explored, m = state.leader, state.explored, state.shape.n_positions
    for q in range(leader.order.size):
        explored.order[q] = leader.order[q]
    level = state.exploration * math.log(state.epochs.horizon[0])
    b, count = 0, 0
    while leader.first[b] < m:
        explored.first[count] = leader.first[b]
        count += 1
        if leader.first[b + 1] >= m:
            finish_blocks(explored, count, leader.first[b + 1] + add_promising_item(state, b, level))
            return
        b += 2 if any_may_be_better(state, b, level) else 1
    finish_blocks(explored, count, leader.first[b])


@inner_kernel
def any_may_be_better(state: State, b: int, level: float) -> bool:
    """Whether an item of the next block may be better than one of this block."""
    leader = state.leader
    for p in range(leader.first[b], leader.first[b + 1]):
        for q in range(leader.first[b + 1], leader.first[b + 2]):
            if may_be_better(state, leader.order[q], leader.order[p], level):
                return True
    return False


@inner_kernel
def may_be_better(state: State, j: int, i: int, level: float) -> bool:
    """Whether the upper bound on the probability that j wins a duel with i is above 1/2, without root finding."""
    won, lost = float(state.duels.wins[j, i]), float(state.duels.wins[i, j])
    fought = won + lost
    if won >= lost:
        return True
    # Pinsker's inequality decides most pairs without logarithms.
    if (lost - won) * (lost - won) >= 2.0 * fought * level:
        return False
    return fought * kl(won / fought, 0.5) < level


@inner_kernel
def add_promising_item(state: State, b: int, level: float) -> int:
    """Move the item with the largest bound, of the first block below that has any, right behind block b.

    Returns the number of items moved, 0 or 1. Ties are broken by the random stream.
    """
    leader, order = state.leader, state.explored.order
    end = leader.first[b + 1]
    best, at, ties = 0.5, -1, 0
    for q in range(end, order.size):
        if at >= 0 and leader.block[order[q]] > leader.block[order[at]]:
            break
        bound = largest_upper_bound(state, b, leader.order[q], level)
        if bound > best:
            best, at, ties = bound, q, 1
        elif bound == best and at >= 0:
            ties += 1
            if state.stream.random() * ties < 1.0:
                at = q
    if at < 0:
        return 0
    order[end], order[at] = order[at], order[end]
    return 1


@inner_kernel
def largest_upper_bound(state: State, b: int, j: int, level: float) -> float:
    """Return the largest upper bound on the probability that j beats an item of block b; 0 if none is above 1/2."""
    leader, wins, best = state.leader, state.duels.wins, 0.0
    for p in range(leader.first[b], leader.first[b + 1]):
        i = leader.order[p]
        if may_be_better(state, j, i, level):
            fought = float(wins[j, i] + wins[i, j])
            best = max(best, kl_upper(wins[j, i] / max(fought, 1.0), fought, level))
    return best


@inner_kernel
def finish_blocks(explored: Blocks, count: int, end: int) -> None:
    """Complete the partition: ``count`` blocks up to place ``end``, then one block of all other items."""
    n = explored.order.size
    explored.first[count] = end
    if end < n:
        count += 1
    for c in range(count, n + 1):
        explored.first[c] = n
    explored.n_blocks[0] = count
    for b in range(count):
        for q in range(explored.first[b], explored.first[b + 1]):
            explored.block[explored.order[q]] = b
            explored.place[explored.order[q]] = q
