"""PBM-TS: Thompson sampling when examination is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, kernel
from .parts.counts import Counts, forgets, record
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import KnownExamination, Positions, place
from .parts.posterior import draw, level_hats, put_hat


class State(NamedTuple):
    shape: Shape
    counts: Counts
    positions: Positions
    hats: Floats  # (n, 8) of the posterior of every item
    work: RankWork


@dataclass(frozen=True)
class PbmTs(KnownExamination):
    r"""Ranks items by attractions drawn from their posterior, with known examination.

    Every item's attraction has a uniform prior, and every round draws one value for each item from the posterior. The
    item with the largest value goes to the most examined position, and so on. A missing click at a position that is
    rarely examined changes the posterior little.

    .. math::

        p(\theta_i) \propto \theta_i^{\sum_j S_{ij}} \prod_j (1 - \beta_j \theta_i)^{N_{ij} - S_{ij}},
        \qquad 0 \le \theta_i \le 1

    with N impressions and S clicks. Draws are exact, by rejection sampling under a hat of two tangents and the height
    of the mode. The published proposal, from the position with the most impressions, is hardly ever accepted where
    impressions are spread over positions.

    Requires: examination. If it is not known, ``pbm-ucb-mle`` fits it.
    Guarantee: none is published for more than one position; among the best where users are steady.
    Known failure: examination that differs from the given one, above all if the order of positions is reversed.

    Parameters
    ----------
    examination
        Probability with which each position is examined. In contrast to ``pbm-ucb``, a common factor
        matters, since attraction is a probability.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("yandex/stochastic")
    >>> policies = (bothworlds.policy(name, examination=world.examination) for name in ("pbm-ts", "pbm-ucb"))
    >>> sampling, bounds = (bothworlds.play(policy, world, rounds=10_000, replications=4) for policy in policies)
    >>> bool(sampling.regret()[:, -1].mean() < 0.5 * bounds.regret()[:, -1].mean())
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 6.
    """

    name = "pbm-ts"
    twin = "pbm-ucb-mle"

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, self.counts(shape), self.positions(shape), level_hats(n), make_rank_work(n))

    def refreshed(self, state: State) -> State:
        """Return the state with the posteriors of its counts."""
        update_all_hats(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    counts, examination = state.counts, state.positions.examination
    for i in range(state.shape.n_items):
        state.work.score[i] = draw(counts.shown[i], counts.clicked[i], examination, state.hats[i], rng)
    place(state.work, state.positions.order, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, examination = state.counts, state.positions.examination
    record(counts, ranking, clicks)
    if forgets(counts):
        update_all_hats(state)
        return
    for i in ranking:
        if i >= 0:
            put_hat(counts.shown[i], counts.clicked[i], examination, state.hats[i])


@kernel
def update_all_hats(state: State) -> None:
    """Fit the hats of all items to the counts."""
    counts = state.counts
    for i in range(state.shape.n_items):
        put_hat(counts.shown[i], counts.clicked[i], state.positions.examination, state.hats[i])
