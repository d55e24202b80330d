"""TopRank: a partial order of the items that grows with every duel that is decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import NO_CONTEXT, Shape, decides, learns, notes
from ..kernels import Floats, Ints, inner_kernel, kernel
from .parts.blocks import Blocks, arrange, draw_list, make_blocks, note_sizes, one_block
from .parts.duels import Duels, forget_duels, make_duels, record_duels
from .parts.epochs import LEAVES as EPOCHS_LEAVES
from .parts.epochs import Epochs, new_epoch
from .parts.settings import Planning, number

PEELING = 4.0 * math.sqrt(2.0 / math.pi) / math.erf(math.sqrt(2.0))  # 3.34, the constant of the confidence bound


class Work(NamedTuple):
    behind: Ints  # (n,)
    part: Blocks  # of the items that could be shown on a page
    ranking: Ints  # (m,) at the positions that are learned from
    clicks: Floats  # (m,)
    sizes: Floats  # (m,)


class State(NamedTuple):
    shape: Shape
    confidence: float  # 0 for 1 / horizon
    epochs: Epochs
    duels: Duels
    worse: NDArray[np.bool_]  # (n, n) worse[i, j]: j is certainly worse than i
    blocks: Blocks
    work: Work


@dataclass(frozen=True, kw_only=True)
class TopRank(Planning):
    r"""Sorts items into blocks by statistically certain duels, and shuffles inside the blocks.

    Items of one block are shown in random order, so all have the same position bias, and an item wins a duel if it is
    clicked and the other is not. Once the difference of wins and losses against another item is significant, the other
    one is permanently worse, and the blocks are rebuilt: first the items worse than none, then those worse than none of
    the rest, and so on. Items of the last block that were not on the page count as not clicked.

    .. math::

        S_{ij} = \sum_t (c_{ti} - c_{tj}), \quad N_{ij} = \sum_t |c_{ti} - c_{tj}|, \qquad
        j \text{ is worse than } i \text{ once } \;
        S_{ij} \ge \sqrt{2 N_{ij} \log \left( \frac{c}{\delta} \sqrt{N_{ij}} \right)} > 0

    with sums over the rounds in which both were in one block, and
    :math:`c = 4 \sqrt{2 / \pi} / \text{erf}(\sqrt 2)`, which is 3.34 (often quoted as 3.43). A round updates only pairs
    of a clicked and an unclicked item of one block. Of a page without some items, these are the blocks of the others.

    Requires: the horizon (or the doubling trick is used), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{mn}{\Delta} \log T)` and :math:`O(\sqrt{m^3 n T \log T})` with steady users, in many click
    models.
    Known failure: it never revises its order. Where users change, or positions are read from the other end, it keeps
    the first order unless ``restart`` is set.

    Parameters
    ----------
    confidence
        The probability :math:`\delta` of a wrong order; None for one over the horizon.

    Examples
    --------
    With steady users, it soon shows one list only:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("toprank", horizon=1000)
    >>> state, rng = policy.init(3, 2), np.random.default_rng(0)
    >>> for _ in range(300):
    ...     decision = policy.decide(state, rng)
    ...     state = policy.learn(state, decision, rng.random(2) < np.array([0.9, 0.3, 0.0])[decision.ranking])
    >>> decision.ranking, decision.propensity
    (array([0, 1]), array([1., 1.]))

    References
    ----------
    Lattimore, Kveton, Li, Szepesvari: TopRank: a practical algorithm for online stochastic ranking, NeurIPS 2018.
    """

    confidence: float | None = number(None, 1e-15, 0.999999)

    name = "toprank"
    needs = ("horizon", "order")
    learned_leaves: ClassVar = {"duels.wins": "ii", "worse": "ii", **EPOCHS_LEAVES}

    def note_size(self, shape: Shape) -> int:
        """Return the number of positions: it remembers the size of the block at each."""
        return shape.n_positions

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            confidence=float(self.confidence or 0.0),
            epochs=self.epochs(),
            duels=make_duels(n, m),
            worse=np.zeros((n, n), np.bool_),
            blocks=make_blocks(n),
            work=Work(np.zeros(n, np.int64), make_blocks(n), np.zeros(m, np.int64), np.zeros(m), np.zeros(m)),
        )

    def note_of_part(
        self, state: State, ranking: Ints, positions: Ints, n_positions: int, context: ArrayLike = NO_CONTEXT
    ) -> Floats:
        """Return the sizes of the blocks of the part at its positions; 0 at others."""
        sizes, sizes_of_part = np.zeros(n_positions), np.zeros(len(positions))
        note(state, ranking, sizes_of_part)
        sizes[positions] = sizes_of_part
        return sizes

    def refreshed(self, state: State) -> State:
        """Return the state with the blocks of its relation."""
        rebuild(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    draw_list(state.blocks, rng, ranking, propensity)


@notes(State)
def note(state: State, ranking: Ints, note: Floats) -> None:
    note_sizes(state.blocks, note)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints) -> None:
    if new_epoch(state.epochs):
        restart(state)
        return
    work, blocks, noted = state.work, state.blocks, note.size == ranking.size
    m = learned_positions(work, ranking, clicks, note, noted)
    if absent.size > 0:
        blocks = work.part
        arrange(blocks, state.worse, work.behind, absent)
    record_duels(state.duels, blocks, work.ranking[:m], work.clicks[:m], work.sizes[: m if noted else 0])
    grown = False
    for j in range(m):
        if work.clicks[j] > 0.0:
            grown |= extend_relation(state, blocks, work.ranking[j])
    if grown:
        rebuild(state)


@inner_kernel
def learned_positions(work: Work, ranking: Ints, clicks: Floats, note: Floats, noted: bool) -> int:
    """Copy a page without the positions that are not learned from; return how many there are."""
    m = 0
    for j in range(ranking.size):
        if ranking[j] >= 0:
            work.ranking[m], work.clicks[m] = ranking[j], clicks[j]
            if noted:
                work.sizes[m] = note[j]
            m += 1
    return m


@kernel
def rebuild(state: State) -> None:
    """Compute the blocks from the relation."""
    arrange(state.blocks, state.worse, state.work.behind, state.work.behind[:0])


@inner_kernel
def extend_relation(state: State, blocks: Blocks, i: int) -> bool:
    """Add the items of its block that are now certainly worse than i to ``worse``; return whether there are any."""
    wins = state.duels.wins
    delta = 1.0 / state.epochs.horizon[0] if state.confidence <= 0.0 else state.confidence
    level = 2.0 * math.log(PEELING / delta)
    b, grown = blocks.block[i], False
    for q in range(blocks.first[b], blocks.first[b + 1]):
        j = blocks.order[q]
        # Of a pair, lead <= fought, so the bound requires lead >= level. Reading a column of wins takes the most time.
        if wins[i, j] < level:
            continue
        lead, fought = float(wins[i, j] - wins[j, i]), float(wins[i, j] + wins[j, i])
        # The bound is 2 fought (log(c / delta) + log(fought) / 2); most pairs are below its first part already.
        if lead > 0 and lead * lead >= fought * level and lead * lead >= fought * (level + math.log(fought)):
            state.worse[i, j] = True
            grown = True
    return grown


@inner_kernel
def restart(state: State) -> None:
    n = state.shape.n_items
    forget_duels(state.duels)
    one_block(state.blocks)
    for i in range(n):
        for j in range(n):
            state.worse[i, j] = False
