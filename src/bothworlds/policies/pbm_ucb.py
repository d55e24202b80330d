"""PBM-UCB: upper confidence bounds on attraction when examination is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from .parts.counts import Counts, record
from .parts.item_totals import ItemTotals, add_up_all, add_up_shown, make_item_totals, sums_of
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import KnownExamination, Positions, place
from .parts.settings import number


class State(NamedTuple):
    shape: Shape
    epsilon: float
    counts: Counts
    positions: Positions
    totals: ItemTotals
    work: RankWork


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
    >>> result = bothworlds.play(policy, world, rounds=10_000, replications=4)
    >>> other = bothworlds.play("ftrl-pbm", world, rounds=10_000, replications=4)
    >>> bool(result.regret()[:, -1].mean() < 0.5 * other.regret()[:, -1].mean())
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 4.
    """

    epsilon: float = number(0.0, 0.0, 1e6)

    name = "pbm-ucb"
    twin = "pbm-ucb-mle"

    def start(self, shape: Shape, kept: bool | None = None) -> State:
        """Return the initial state; ``kept`` is whether sums over counts are kept from round to round."""
        kept = self.keeps_totals(shape) if kept is None else kept
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            counts=self.counts(shape),
            positions=self.positions(shape),
            totals=make_item_totals(shape.n_items, kept=kept),
            work=make_rank_work(shape.n_items),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with the sums of its counts."""
        if state.totals.kept:
            add_up_all(state.totals, state.counts, state.positions.examination)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    rank_by_upper_bounds(state.counts, state.positions, state.epsilon, state.totals, state.work, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    if state.totals.kept:
        add_up_shown(state.totals, state.counts, state.positions.examination, ranking)


@inner_kernel
def rank_by_upper_bounds(
    counts: Counts,
    positions: Positions,
    epsilon: float,
    totals: ItemTotals,
    work: RankWork,
    rng: np.random.Generator,
    ranking: Ints,
) -> None:
    """Fill in a ranking by the rule of PBM-UCB for a given examination."""
    level = (1.0 + epsilon) * math.log(counts.rounds[0] + 1.0)
    if totals.kept:
        for i in range(work.score.size):
            work.score[i] = upper_bound(totals.clicks[i], totals.impressions[i], totals.looks[i], level)
    else:
        for i in range(work.score.size):
            clicks, impressions, looks = sums_of(counts, positions.examination, i)
            work.score[i] = upper_bound(clicks, impressions, looks, level)
    place(work, positions.order, rng, ranking)


@inner_kernel
def upper_bound(clicks: float, impressions: float, looks: float, level: float) -> float:
    """Return U of an item; infinite if nobody has looked at it."""
    return (clicks + math.sqrt(0.5 * impressions * level)) / looks if looks > 0.0 else math.inf
