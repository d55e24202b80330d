"""PBM-PIE: parsimonious exploration at the last position when examination is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import EDGE, kl
from .parts.counts import Counts, lacking_list, record
from .parts.epochs import LEAVES as EPOCHS_LEAVES
from .parts.epochs import Epochs, new_epoch
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import KnownExamination, Positions, place
from .parts.settings import Planning, number


class State(NamedTuple):
    shape: Shape
    epsilon: float
    memory: float
    counts: Counts
    epochs: Epochs
    positions: Positions
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class PieSettings(Planning):
    """The settings that PBM-PIE and PBM-PIE-MLE share, except those of examination."""

    epsilon: float = number(0.0, 0.0, 1e6)

    learned_leaves: ClassVar[Mapping[str, str] | None] = EPOCHS_LEAVES


@dataclass(frozen=True)
class PbmPie(KnownExamination, PieSettings):
    r"""Shows the items with the best estimates, and explores at the least examined position only.

    All positions but the last get the items with the highest estimated attraction. At the last one, where exploration
    costs least, every other round on average shows an item that may be better than the one that belongs there: one
    whose upper bound on attraction, at level :math:`\log T`, is at least as high. With known examination, clicks at
    every position count as evidence of attraction.

    .. math::

        \Phi_i(q) &= \sum_j N_{ij} \, kl\left(\frac{S_{ij}}{N_{ij}}, \beta_j q\right), \qquad
        U_i = \max \{q \ge \arg\min \Phi_i : \Phi_i(q) \le (1 + \epsilon) \log T\} \\
        B &= \{i \text{ not among the } m \text{ leaders} : U_i \ge \hat\theta_m\}, \qquad
        \hat\theta_i = \frac{\sum_j S_{ij}}{\sum_j \beta_j N_{ij}}

    The last position gets a random item of B with probability 1/2, otherwise the m-th leader. Whether an item is in B
    follows from :math:`\Phi_i(\hat\theta_m)` and its slope, without solving for :math:`U_i`. It starts with the n
    cyclic lists, which show every item once at every position. With the doubling trick only the horizon changes: the
    counts are kept.

    Requires: examination, and the horizon. If examination is not known, ``pbm-pie-mle`` fits it.
    Guarantee: asymptotically the least possible regret, :math:`O(\log T)`, with steady users.
    Known failure: users that change. It explores at one position only, and stops when the bounds are tight.

    Parameters
    ----------
    epsilon
        Widens the bounds. The proof requires more than 0; the default 0 does best in practice.
    examination
        Probability with which each position is examined, up to a common factor.
    horizon
        The number of rounds to plan for; ``play`` fills it in.
    restart
        Number of rounds after which everything is forgotten; None for never.
    window, discount
        Number of most recent rounds to remember, or a factor by which older rounds are discounted in every round. T is
        then limited to the rounds that are remembered.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("yandex/stochastic")
    >>> policies = (bothworlds.policy(name, examination=world.examination) for name in ("pbm-pie", "pbm-ucb"))
    >>> careful, optimist = (bothworlds.play(policy, world, rounds=10_000, replications=4) for policy in policies)
    >>> bool(careful.regret()[:, -1].mean() < 0.5 * optimist.regret()[:, -1].mean())
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 5;
    Combes, Magureanu, Proutiere, Laroche: Learning to rank: regret lower bounds and efficient algorithms,
    SIGMETRICS 2015 (PIE).
    """

    name = "pbm-pie"
    needs = ("horizon", "examination")
    twin = "pbm-pie-mle"

    def start(self, shape: Shape) -> State:
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            memory=self.memory(),
            counts=self.counts(shape),
            epochs=self.epochs(),
            positions=self.positions(shape),
            work=make_rank_work(shape.n_items),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    lacking = lacking_list(state.counts, 0.0, rng, ranking)
    if lacking > 0:
        for j in range(ranking.size):
            propensity[j] = 1.0 / lacking
        return
    level = (1.0 + state.epsilon) * math.log(min(state.epochs.horizon[0], state.memory))
    explore_last(state.counts, state.positions, level, state.work, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    forget_at_restart(state.counts, state.epochs)


@inner_kernel
def forget_at_restart(counts: Counts, epochs: Epochs) -> None:
    """Count the round; forget everything at a restart, but not when the doubling trick extends the horizon."""
    if new_epoch(epochs) and epochs.growth == 1.0:
        for i in range(counts.shown.shape[0]):
            for j in range(counts.shown.shape[1]):
                counts.shown[i, j] = 0.0
                counts.clicked[i, j] = 0.0
        counts.rounds[0] = 0.0
        counts.learned[0] = 0


@inner_kernel
def explore_last(
    counts: Counts,
    positions: Positions,
    level: float,
    work: RankWork,
    rng: np.random.Generator,
    ranking: Ints,
    propensity: Floats,
) -> None:
    """Fill in a ranking by the rule of PBM-PIE for a given examination, and its propensities."""
    n, m = counts.shown.shape
    score, items, order = work.score, work.items, positions.order
    for i in range(n):
        clicks, looks = 0.0, 0.0
        for j in range(m):
            clicks += counts.clicked[i, j]
            looks += positions.examination[j] * counts.shown[i, j]
        score[i] = clicks / looks if looks > 0.0 else math.inf
    place(work, order, rng, ranking)
    for k in range(m):
        propensity[order[k]] = 1.0 / _equals(score, score[items[k]])
    threshold, rivals, chosen, tied = score[items[m - 1]], 0, -1, False
    for k in range(m, n):
        i = items[k]
        tied = tied or score[i] == threshold
        if may_reach(counts.shown[i], counts.clicked[i], positions.examination, threshold, level):
            rivals += 1
            if rng.random() * rivals < 1.0:
                chosen = i
    last = order[m - 1]
    if rivals > 0:
        if rng.random() < 0.5:
            ranking[last] = chosen
            propensity[last] = 0.5 / rivals
        else:
            propensity[last] *= 0.5
    # With equal scores, it is random which items are leaders.
    if tied:
        propensity[last] = math.nan


@inner_kernel
def _equals(score: Floats, value: float) -> int:
    equal = 0
    for i in range(score.size):
        if score[i] == value:
            equal += 1
    return equal


@inner_kernel
def may_reach(shown: Floats, clicked: Floats, examination: Floats, q: float, level: float) -> bool:
    """Whether the upper bound on the attraction is q or more: the divergence at q is within the level, or falls."""
    if q <= 0.0:
        return True
    divergence, slope = 0.0, 0.0
    for j in range(shown.size):
        if shown[j] > 0.0:
            mean = min(examination[j] * q, 1.0 - EDGE)
            divergence += shown[j] * kl(clicked[j] / shown[j], mean)
            slope += (shown[j] - clicked[j]) * mean / (1.0 - mean) - clicked[j]
    return slope <= 0.0 or divergence <= level
