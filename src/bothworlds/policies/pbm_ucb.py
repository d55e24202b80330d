"""PBM-UCB: upper confidence bounds on attraction when examination is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Ledger, Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from .parts.counts import Counts, record
from .parts.position_based import KnownExamination, Positions, RankWork, make_rank_work, place
from .parts.settings import number

__all__ = ["PbmUcb", "rank_by_upper_bounds"]


class State(NamedTuple):
    shape: Shape
    epsilon: float
    counts: Counts
    positions: Positions
    rank: RankWork


@dataclass(frozen=True)
class PbmUcb(KnownExamination):
    r"""Ranks items by an upper confidence bound on their attraction, with known examination.

    Clicks are divided by the total examination of an item's impressions, which gives an unbiased estimate of its
    attraction from any mixture of positions. The bound is wide for an item with few impressions, or with impressions at
    rarely examined positions only. The k-th largest bound goes to the k-th most examined position.

    .. math::

        \hat\theta_i = \frac{\sum_j S_{ij}}{\sum_j \beta_j N_{ij}}, \qquad
        U_i = \hat\theta_i + \sqrt{\frac{\sum_j N_{ij}}{\sum_j \beta_j N_{ij}}}
            \sqrt{\frac{(1 + \epsilon) \log t}{2 \sum_j \beta_j N_{ij}}}

    with N impressions and S clicks. Bounds are not clipped at 1, which would cause ties.

    Requires: examination. If it is not known, ``pbm-ucb-mle`` fits it.
    Guarantee: :math:`O(\log T)` with steady users, for :math:`\epsilon > 0`.
    Known failure: examination that differs from the given one, above all if the order of positions is reversed.

    Parameters
    ----------
    epsilon
        Widens the bounds. The proof requires more than 0; the default 0 does best in practice.
    examination
        Probability with which each position is examined, up to a common factor.
    window, discount
        Number of most recent rounds to remember, or a factor by which older rounds are discounted in every round. The
        number of rounds that are remembered then replaces t.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("paper/stochastic")
    >>> policy = bothworlds.policy("pbm-ucb", examination=world.examination)
    >>> result = bothworlds.play(policy, world, rounds=10_000, seeds=4)
    >>> other = bothworlds.play("ftrl-pbm", world, rounds=10_000, seeds=4)
    >>> bool(result.regret()[:, -1].mean() < 0.5 * other.regret()[:, -1].mean())
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 4.
    """

    epsilon: float = 0.0

    name = "pbm-ucb"
    twin = "pbm-ucb-mle"

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "epsilon", above=0.0, closed="[")

    def start(self, shape: Shape) -> State:
        return State(
            shape, float(self.epsilon), self.counts(shape), self.positions(shape), make_rank_work(shape.n_items)
        )

    def resumed(self, ledger: Ledger) -> State:
        """Return the state after the events that the ledger sums up."""
        state: State = self.state_from_counts(ledger)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    rank_by_upper_bounds(state.counts, state.positions, state.epsilon, state.rank, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)


@inner_kernel
def rank_by_upper_bounds(
    counts: Counts, positions: Positions, epsilon: float, rank: RankWork, rng: np.random.Generator, ranking: Ints
) -> None:
    """Fill in a ranking by the rule of PBM-UCB for a given examination."""
    n, m = counts.shown.shape
    level = (1.0 + epsilon) * math.log(counts.rounds[0] + 1.0)
    for i in range(n):
        clicks, looks, impressions = 0.0, 0.0, 0.0
        for j in range(m):
            clicks += counts.clicked[i, j]
            impressions += counts.shown[i, j]
            looks += positions.examination[j] * counts.shown[i, j]
        rank.score[i] = (clicks + math.sqrt(0.5 * impressions * level)) / looks if looks > 0.0 else math.inf
    place(rank, positions.order, rng, ranking)
