"""UniRank: a leader among partitions, and exploration of its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import kl, kl_upper
from .parts.blocks import Blocks, arrange, draw_list, make_blocks, one_block
from .parts.duels import Duels, forget_duels, make_duels, record_duels
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream, uniform
from .parts.settings import Planning, number

__all__ = ["UniRank"]


class State(NamedTuple):
    shape: Shape
    exploration: float
    doubt: float
    epochs: Epochs
    duels: Duels
    leader: Blocks  # the partition that the duels speak for
    explored: Blocks  # the one that lists are drawn from
    stream: Stream
    worse: NDArray[np.bool_]  # (n, n) work
    behind: Ints  # (n,) work


@dataclass(frozen=True, kw_only=True)
class UniRank(Planning):
    r"""Follows the order that duels speak for, and merges neighbouring blocks as long as they may be in wrong order.

    The leader is the ordered partition in which an item is above another where it has won more of their duels, by a
    hair more than chance. Around it, two neighbouring blocks are merged, shown in random order as one, as long as some
    item of the lower one might be better than one of the upper. In contrast to TopRank nothing is final: a verdict
    that later duels contradict is withdrawn.

    .. math::

        j \text{ is below } i \text{ where } \;
        \hat s_{ji} + \sqrt{\frac{\log \log (t + 3)}{N_{ij}}} < 0, \qquad
        \hat s_{ji} = \frac{1}{N_{ij}} \sum_t (c_{tj} - c_{ti}), \quad N_{ij} = \sum_t |c_{ti} - c_{tj}|

    and blocks are merged, from the top, where for some i of the upper and j of the lower one

    .. math::

        \max \left\{ q : N_{ij} \, kl \left( \frac{1 + \hat s_{ji}}{2}, q \right) \le \log T \right\} > \frac 1 2

    A merged block is not merged again. The block at the end of the page takes in one item only, the one with the
    largest such bound in the first block below that has any. Of the variants in the authors' code this is the one that
    merges as much as possible from the top, greedily for the items off the page, with log T for a known horizon; the
    published bound uses how often the partition has led instead of T, which would need a memory of all partitions.

    Needs to be told: the horizon (or it doubles one), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{n}{\Delta} \log T)` with steady users, in several click models, if no two items are
    equally attractive.
    Known failure: where positions are read from the other end it sorts the page the wrong way round for good; it
    changes its mind, but only after as many duels as had made it up.

    Parameters
    ----------
    exploration
        The factor of :math:`\log T`.
    doubt
        The factor of :math:`\log \log (t + 3)`; 0 follows the bare majority.
    horizon
        Rounds to plan for; if None, 1024 at first and twice as many whenever they are over.
    restart
        Forget everything every so many rounds.

    Examples
    --------
    Where everybody clicks the same item and nothing else, it is soon alone at the top.

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

    exploration: float = 1.0
    doubt: float = 1.0

    name = "unirank"
    needs = ("horizon", "order")

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "exploration", above=0.0)
        number(self, "doubt", above=0.0, closed="[")

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            exploration=float(self.exploration),
            doubt=float(self.doubt),
            epochs=self.epochs(),
            duels=make_duels(n, m),
            leader=make_blocks(n),
            explored=make_blocks(n),
            stream=make_stream(n, m),
            worse=np.zeros((n, n), np.bool_),
            behind=np.zeros(n, np.int64),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    draw_list(state.explored, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    if new_epoch(state.epochs):
        forget_duels(state.duels)
        one_block(state.leader)
        one_block(state.explored)
        return
    absorb(state.stream, ranking)
    record_duels(state.duels, state.explored, ranking, propensity, clicks)
    compare(state)
    arrange(state.leader, state.worse, state.behind)
    explore(state)


@inner_kernel
def compare(state: State) -> None:
    """Whom the duels, by a hair, put below whom."""
    wins, n = state.duels.wins, state.shape.n_items
    hair = state.doubt * math.log(math.log(state.epochs.rounds[0] + 3.0))
    for i in range(n):
        for j in range(i):
            lead, fought = float(wins[i, j] - wins[j, i]), float(wins[i, j] + wins[j, i])
            beyond = lead * lead > fought * hair
            state.worse[i, j] = beyond and lead > 0.0
            state.worse[j, i] = beyond and lead < 0.0


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
            close(explored, count, leader.first[b + 1] + invite(state, b, level))
            return
        b += 2 if any_may_be_better(state, b, level) else 1
    close(explored, count, leader.first[b])


@inner_kernel
def any_may_be_better(state: State, b: int, level: float) -> bool:
    """Whether an item of the next block may be better than one of this."""
    leader = state.leader
    for p in range(leader.first[b], leader.first[b + 1]):
        for q in range(leader.first[b + 1], leader.first[b + 2]):
            if may_be_better(state, leader.order[q], leader.order[p], level):
                return True
    return False


@inner_kernel
def may_be_better(state: State, j: int, i: int, level: float) -> bool:
    """Whether the upper bound on the chance of j to win a duel with i is above one half; that takes no root finding."""
    won, lost = float(state.duels.wins[j, i]), float(state.duels.wins[i, j])
    fought = won + lost
    if won >= lost:
        return True
    # Pinsker's inequality spares most pairs the logarithms.
    if (lost - won) * (lost - won) >= 2.0 * fought * level:
        return False
    return fought * kl(won / fought, 0.5) < level


@inner_kernel
def invite(state: State, b: int, level: float) -> int:
    """Move the most promising item from the first block below that has any right behind block b; say how many, 0 or 1.

    Among equals the stream decides.
    """
    leader, order = state.leader, state.explored.order
    end = leader.first[b + 1]
    best, at, ties = 0.5, -1, 0
    for q in range(end, order.size):
        if at >= 0 and leader.block[order[q]] > leader.block[order[at]]:
            break
        hope = promise(state, b, leader.order[q], level)
        if hope > best:
            best, at, ties = hope, q, 1
        elif hope == best and at >= 0:
            ties += 1
            if uniform(state.stream) * ties < 1.0:
                at = q
    if at < 0:
        return 0
    order[end], order[at] = order[at], order[end]
    return 1


@inner_kernel
def promise(state: State, b: int, j: int, level: float) -> float:
    """The largest upper bound on the chance of j to win a duel with an item of block b, or 0 if none is above 1/2."""
    leader, wins, best = state.leader, state.duels.wins, 0.0
    for p in range(leader.first[b], leader.first[b + 1]):
        i = leader.order[p]
        if may_be_better(state, j, i, level):
            fought = float(wins[j, i] + wins[i, j])
            best = max(best, kl_upper(wins[j, i] / max(fought, 1.0), fought, level))
    return best


@inner_kernel
def close(explored: Blocks, count: int, end: int) -> None:
    """After so many blocks, up to that place, one more of all items that are left; bring the rest up to date."""
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
