"""RecurRank for items without features: phased elimination with clicks at the first position of every block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel, kernel
from .parts.blocks import Blocks, cut, exchange, make_blocks, one_block, sort_block
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import Planning, number


class State(NamedTuple):
    """A node is a block, with its items in the order of display. Entries of a node are stored at its first place."""

    shape: Shape
    confidence: float  # 0 for one over the root of the horizon
    epochs: Epochs
    blocks: Blocks
    queue: Ints  # (n,) the items of every node, those that are due first
    turn: Ints  # (n,) place of every item in the queue
    due: Ints  # (n,) how many items of the node are due
    stage: Ints  # (n,) of the node
    displays: Floats  # (n,) of each item of the node in this stage
    sorted: Ints  # (1,) 0 during the first stage, before there is an order
    shown: Ints  # (n,) times at the head of the node in this stage
    clicked: Floats  # (n,)
    stream: Stream
    work: Floats  # (n,) click rates


@dataclass(frozen=True, kw_only=True)
class RecurRank(Planning):
    r"""Splits blocks by click rates at each block's first position, in stages of increasing resolution.

    The items of every block take turns at its first position, until each has been there equally often, while the others
    follow in their present order; clicks count at that position only. Then the block is sorted by click rate, items
    that are too far behind to be shown are dropped, and the block is split at gaps between the rates. Each part
    continues on its own, with twice the resolution.

    .. math::

        T_\ell = \left\lceil \frac{1}{2 \Delta_\ell^2} \log \frac{|A|}{\delta_\ell} \right\rceil, \qquad
        \Delta_\ell = 2^{-\ell}, \qquad \delta_\ell = \frac{\delta}{m \, \ell (\ell + 1)}

    displays for each of the :math:`|A|` items of a block in stage :math:`\ell`; it is split, or items are dropped,
    where rates differ by :math:`2 \Delta_\ell` or more. This is the published algorithm for one-hot features, where the
    optimal design is uniform and least squares are averages. The item at the first position is drawn at random, and so
    is the order of the others during the first stage.

    Requires: the horizon (or the doubling trick is used), and the order of positions, most examined first.
    Guarantee: :math:`O(m \sqrt{n T \log (nT)})` with steady users, in many click models.
    Known failure: rates at low positions are small, and so are their differences, while the resolution is the same for
    all; until a block is split, all of its items are shown equally often at its best position. It never revises a
    split.

    Parameters
    ----------
    confidence
        The probability :math:`\delta` of a wrong split; None for one over the square root of the horizon.

    Examples
    --------
    One stage is enough if users always click on one item and on nothing else.

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("recurrank", horizon=100)
    >>> state, rng = policy.init(4, 2), np.random.default_rng(0)
    >>> for _ in range(60):
    ...     decision = policy.decide(state, rng)
    ...     state = policy.learn(state, decision, decision.ranking == 2)
    >>> int(decision.ranking[0]), float(decision.propensity[0])
    (2, 1.0)

    References
    ----------
    Li, Lattimore, Szepesvari: Online learning to rank with features, ICML 2019.
    """

    confidence: float | None = number(None, 1e-15, 0.999999)

    name = "recurrank"
    needs = ("horizon", "order")

    def start(self, shape: Shape) -> State:
        n, _ = shape
        state = State(
            shape=shape,
            confidence=float(self.confidence or 0.0),
            epochs=self.epochs(),
            blocks=make_blocks(n),
            queue=np.arange(n),
            turn=np.arange(n),
            due=np.zeros(n, np.int64),
            stage=np.zeros(n, np.int64),
            displays=np.zeros(n),
            sorted=np.zeros(1, np.int64),
            shown=np.zeros(n, np.int64),
            clicked=np.zeros(n),
            stream=make_stream(*shape),
            work=np.zeros(n),
        )
        restart(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    first = state.blocks.first
    if not state.sorted[0]:
        show_unsorted(state, rng, ranking, propensity)
        return
    b = 0
    while first[b] < ranking.size:
        a, e = first[b], first[b + 1]
        show(state, a, e, rng, ranking, propensity)
        b += 1


@inner_kernel
def show(state: State, a: int, e: int, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Put an item that is due at the head of the node at places a to e - 1, and the others behind it in order."""
    order, due = state.blocks.order, state.due[a]
    head = state.queue[a + int(rng.random() * due)]
    ranking[a], propensity[a] = head, 1.0 / due
    q, before = a, 0  # the next item in order, and how many items above it are due
    for p in range(a + 1, min(e, ranking.size)):
        if order[q] == head:
            before += 1
            q += 1
        is_due = 1 if state.turn[order[q]] < a + due else 0
        ranking[p] = order[q]
        # It keeps its position if the head was above it, and moves down by one if the head was below it.
        propensity[p] = before / due if q == p else (due - before - is_due) / due
        before += is_due
        q += 1


@inner_kernel
def show_unsorted(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Put an item that is due at the head, and random other items behind it."""
    order, swaps, n = state.blocks.order, state.blocks.work, state.shape.n_items
    due = state.due[0]
    for p in range(ranking.size):
        swaps[p] = (
            state.blocks.place[state.queue[int(rng.random() * due)]] if p == 0 else p + int(rng.random() * (n - p))
        )
        order[p], order[swaps[p]] = order[swaps[p]], order[p]
        at_head = 1.0 / due if state.turn[order[p]] < due else 0.0
        ranking[p] = order[p]
        propensity[p] = at_head if p == 0 else (1.0 - at_head) / (n - 1)
    for p in range(ranking.size - 1, -1, -1):
        order[p], order[swaps[p]] = order[swaps[p]], order[p]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    blocks = state.blocks
    if new_epoch(state.epochs):
        restart(state)
        return
    absorb(state.stream, ranking)
    # Start with the last node, because a split renumbers later ones.
    for b in range(blocks.n_blocks[0] - 1, -1, -1):
        a, e = blocks.first[b], blocks.first[b + 1]
        if a < ranking.size and e - a > 1:
            i = ranking[a]
            # Late feedback may be of an item that has left the node or is no longer due.
            if blocks.block[i] == b and state.turn[i] < a + state.due[a]:
                take_turn(state, a, i, clicks[a])
                if state.due[a] == 0:
                    end_stage(state, b)


@inner_kernel
def take_turn(state: State, a: int, i: int, click: float) -> None:
    """Count a display of item i at the head of the node that begins at place a."""
    state.shown[i] += 1
    state.clicked[i] += click
    if state.shown[i] >= state.displays[a]:
        state.due[a] -= 1
        last = state.queue[a + state.due[a]]
        state.queue[state.turn[i]], state.queue[a + state.due[a]] = last, i
        state.turn[last], state.turn[i] = state.turn[i], a + state.due[a]


@inner_kernel
def end_stage(state: State, b: int) -> None:
    """Sort the node by click rate, drop items that are too far behind, split it at gaps."""
    blocks, order, rate = state.blocks, state.blocks.order, state.work
    a, e, stage = blocks.first[b], blocks.first[b + 1], state.stage[blocks.first[b]]
    end, gap = min(e, state.shape.n_positions), 2.0 * 0.5**stage
    for q in range(a, e):
        exchange(blocks, q, q + int(state.stream.random() * (e - q)))  # so that equal rates are in random order
        rate[order[q]] = state.clicked[order[q]] / state.shown[order[q]]
    sort_block(blocks, b, rate)
    state.sorted[0] = 1
    kept = e
    while kept > end and rate[order[end - 1]] - rate[order[kept - 1]] >= gap:
        kept -= 1
    cut(blocks, kept)
    for q in range(a + 1, end):
        if rate[order[q - 1]] - rate[order[q]] >= gap:
            cut(blocks, q)
    while a < kept:
        begin_stage(state, a, stage + 1)
        a = blocks.first[blocks.block[order[a]] + 1]


@inner_kernel
def begin_stage(state: State, a: int, stage: int) -> None:
    """Reset the node that begins at place a: all items are due and have no counts."""
    blocks, m = state.blocks, state.shape.n_positions
    e = blocks.first[blocks.block[blocks.order[a]] + 1]
    delta = 1.0 / math.sqrt(state.epochs.horizon[0]) if state.confidence <= 0.0 else state.confidence
    state.stage[a], state.due[a] = stage, e - a
    state.displays[a] = math.ceil(0.5 * 4.0**stage * math.log((e - a) * m * stage * (stage + 1.0) / delta))
    for q in range(a, e):
        i = blocks.order[q]
        state.shown[i], state.clicked[i] = 0, 0.0
        state.queue[q], state.turn[i] = i, q


@kernel
def restart(state: State) -> None:
    one_block(state.blocks)
    state.sorted[0] = 0
    begin_stage(state, state.blocks.first[0], 1)
