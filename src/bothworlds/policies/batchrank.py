"""BatchRank: batches of items and positions that are split by confidence bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import kl_lower, kl_upper
from .parts.blocks import Blocks, cut, exchange, make_blocks, one_block, sort_block
from .parts.epochs import Epochs, new_epoch
from .parts.settings import Planning, number


class Work(NamedTuple):
    upper: Floats  # (n,)
    lower: Floats  # (n,)
    swaps: Ints  # (2, m)


class State(NamedTuple):
    """A batch is a block: its items in ``blocks``, its positions as far as those places are on the page.

    Entries of a batch are stored at the index of its first place. Items of blocks beyond the page are eliminated.
    """

    shape: Shape
    displays: float
    loglog: float
    epochs: Epochs
    blocks: Blocks  # inside a batch, the items that are due come first
    due: Ints  # (n,) number of items of the batch that were shown ``shown`` times; the others once more
    shown: Ints  # (n,) of the batch
    stage: Ints  # (n,) of the batch
    clicked: Floats  # (n,) clicks on every item in this stage
    work: Work


@dataclass(frozen=True, kw_only=True)
class BatchRank(Planning):
    r"""Splits batches of items, with the positions they share, once their confidence bounds are disjoint.

    A batch shows its least shown items in random order at its positions; only they are counted, so that all have been
    shown equally often, at positions with the same distribution. At the end of a stage the batch is split where the
    lower bounds of the items above exceed all upper bounds below; if there is no such place, items that cannot be among
    those shown are dropped, and the next stage takes four times as long.

    .. math::

        n_\ell = \lceil 16 \cdot 4^\ell \log T \rceil, \qquad
        U_i = \max \left\{ q : n_\ell \, kl(\hat c_i, q) \le \log T + 3 \log \log T \right\}, \qquad
        s = \max \left\{ k < \text{len} : L_{(k)} > \max_{i > k} U_{(i)} \right\}

    with :math:`\hat c_i` the click rate of item i in stage :math:`\ell`, :math:`L_i` the lower bound like :math:`U_i`,
    and items in the order of :math:`L`. The first s items and positions become one batch, the others another, both at
    stage 0. In the publication the stage advances only if there are more items than positions; a batch with as many
    items as positions would never end its stage, so here it always advances.

    Requires: the horizon (or the doubling trick is used), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{m^3 n}{\Delta} \log T)` with steady users, in many click models.
    Known failure: the first stage alone takes :math:`16 \log T \cdot n/m` rounds. Where items differ little it shows
    random lists for hundreds of thousands of rounds. It never revises a split.

    Parameters
    ----------
    displays
        The factor 16 of :math:`n_\ell`.
    loglog
        The factor 3 of :math:`\log \log T`.

    Examples
    --------
    After stages 0 and 1, the item that every user clicks is alone at the top.

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("batchrank", horizon=100, displays=1.0)
    >>> state, rng = policy.init(4, 2), np.random.default_rng(0)
    >>> for _ in range(100):
    ...     decision = policy.decide(state, rng)
    ...     state = policy.learn(state, decision, decision.ranking == 3)
    >>> int(decision.ranking[0]), decision.propensity.round(3).tolist()
    (3, [1.0, 0.333])

    References
    ----------
    Zoghi, Tunys, Ghavamzadeh, Kveton, Szepesvari, Wen: Online learning to rank in stochastic click models, ICML 2017.
    """

    displays: float = number(16.0, 1e-6, 1e9)
    loglog: float = number(3.0, 0.0, 1e6)

    name = "batchrank"
    needs = ("horizon", "order")
    patience = 4000

    def start(self, shape: Shape) -> State:
        n, m = shape
        state = State(
            shape=shape,
            displays=float(self.displays),
            loglog=float(self.loglog),
            epochs=self.epochs(),
            blocks=make_blocks(n),
            due=np.zeros(n, np.int64),
            shown=np.zeros(n, np.int64),
            stage=np.zeros(n, np.int64),
            clicked=np.zeros(n),
            work=Work(np.zeros(n), np.zeros(n), np.zeros((2, m), np.int64)),
        )
        state.due[0] = n
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    first = state.blocks.first
    b = 0
    while first[b] < ranking.size:
        show(state, first[b], first[b + 1], rng, ranking, propensity)
        b += 1


@inner_kernel
def show(state: State, a: int, e: int, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Fill the positions of the batch at places a to e - 1: items that are due, then others, in random order."""
    order, place, due = state.blocks.order, state.blocks.place, state.due[a]
    end = min(e, ranking.size)
    length, size = end - a, e - a
    others, shuffled = state.work.swaps[0], state.work.swaps[1]
    for p in range(a + due, end):
        others[p] = p + int(rng.random() * (e - p))
        order[p], order[others[p]] = order[others[p]], order[p]
    for p in range(a, end):
        shuffled[p] = p + int(rng.random() * (max(end, a + due) - p))
        order[p], order[shuffled[p]] = order[shuffled[p]], order[p]
        ranking[p] = order[p]
        if place[order[p]] < a + due:
            propensity[p] = 1.0 / max(length, due)
        else:
            propensity[p] = (length - due) / ((size - due) * float(length))
    # Undo all exchanges, so that the state is not changed.
    for p in range(end - 1, a - 1, -1):
        order[p], order[shuffled[p]] = order[shuffled[p]], order[p]
    for p in range(end - 1, a + due - 1, -1):
        order[p], order[others[p]] = order[others[p]], order[p]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    blocks = state.blocks
    if new_epoch(state.epochs):
        one_block(blocks)
        begin_stage(state, blocks.first[0], 0)
        return
    # Start with the last batch, because a split renumbers later ones.
    for b in range(blocks.n_blocks[0] - 1, -1, -1):
        a, e = blocks.first[b], blocks.first[b + 1]
        if a < ranking.size and e - a > 1:
            collect(state, b, ranking, clicks)
            if state.due[a] == 0:
                state.shown[a] += 1
                state.due[a] = e - a
                log_horizon = math.log(max(state.epochs.horizon[0], 3.0))
                if state.shown[a] >= math.ceil(state.displays * 4.0 ** state.stage[a] * log_horizon):
                    end_stage(state, b, log_horizon)


@inner_kernel
def collect(state: State, b: int, ranking: Ints, clicks: Floats) -> None:
    """Count the items that are due and were shown at positions of the batch; late feedback may be of other items."""
    blocks, a = state.blocks, state.blocks.first[b]
    for p in range(a, min(blocks.first[b + 1], ranking.size)):
        i = ranking[p]
        if blocks.block[i] == b and blocks.place[i] < a + state.due[a]:
            state.clicked[i] += clicks[p]
            state.due[a] -= 1
            exchange(blocks, blocks.place[i], a + state.due[a])


@inner_kernel
def end_stage(state: State, b: int, log_horizon: float) -> None:
    """Split the batch, or drop items that cannot get on the page and begin the next stage."""
    blocks, upper, lower = state.blocks, state.work.upper, state.work.lower
    order, a, e = blocks.order, blocks.first[b], blocks.first[b + 1]
    end, shown = min(e, state.shape.n_positions), float(state.shown[a])
    level = log_horizon + state.loglog * math.log(log_horizon)
    for q in range(a, e):
        rate = state.clicked[order[q]] / shown
        upper[order[q]] = kl_upper(rate, shown, level)
        lower[order[q]] = kl_lower(rate, shown, level)
    sort_block(blocks, b, lower)
    split, below = a, 0.0
    for q in range(e - 1, a, -1):
        below = max(below, upper[order[q]])
        if split == a and q < end and lower[order[q - 1]] > below:
            split = q
    if split > a:
        cut(blocks, split)
        begin_stage(state, a, 0)
        begin_stage(state, split, 0)
    else:
        kept = e
        while kept > end and upper[order[kept - 1]] < lower[order[end - 1]]:
            kept -= 1
        cut(blocks, kept)
        begin_stage(state, a, state.stage[a] + 1)


@inner_kernel
def begin_stage(state: State, a: int, stage: int) -> None:
    """Reset the batch that begins at place a: all items are due and have no clicks."""
    blocks = state.blocks
    e = blocks.first[blocks.block[blocks.order[a]] + 1]
    state.stage[a], state.shown[a], state.due[a] = stage, 0, e - a
    for q in range(a, e):
        state.clicked[blocks.order[q]] = 0.0
