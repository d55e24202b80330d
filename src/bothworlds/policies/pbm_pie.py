"""PBM-PIE: parsimonious exploration at the last position, with examination that is known or fitted on the way."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import EDGE, kl
from .parts.counts import Counts, forget, lacking_list, record
from .parts.epochs import LEAVES as EPOCHS_LEAVES
from .parts.epochs import Epochs, new_epoch
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import (
    Examination,
    FittedExamination,
    ItemTotals,
    KnownExamination,
    add_up_all,
    add_up_shown,
    fit_examination,
    make_item_totals,
    place,
    refit,
)
from .parts.settings import Forgetting, Planning, number


class State(NamedTuple):
    shape: Shape
    epsilon: float
    memory: float
    counts: Counts
    epochs: Epochs
    examined: Examination
    totals: ItemTotals
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class Parsimonious(Forgetting, Planning):
    """The settings and the state that PBM-PIE and PBM-PIE-MLE share.

    Parameters
    ----------
    epsilon
        Widens the bounds. The proof requires more than 0; the default 0 does best in practice.
    """

    epsilon: float = number(0.0, 0.0, 1e6)

    learned_leaves: ClassVar[Mapping[str, str] | None] = EPOCHS_LEAVES

    @abstractmethod
    def examined(self, shape: Shape) -> Examination:
        """Return the examination of the first round."""

    def start(self, shape: Shape) -> State:
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            memory=self.memory(),
            counts=self.counts(shape),
            epochs=self.epochs(),
            examined=self.examined(shape),
            totals=make_item_totals(shape.n_items),
            work=make_rank_work(shape.n_items),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with examination fitted to its counts, and their sums."""
        if state.counts.learned[0] and not state.examined.known:
            fit_examination(state.counts, state.examined)
        add_up_all(state.totals, state.counts, state.examined.positions.examination)
        return state


@dataclass(frozen=True)
class PbmPie(KnownExamination, Parsimonious):
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
    counts are kept. With a window or a discount, T is limited to the rounds that are remembered.

    Requires: examination, and the horizon. If examination is not known, ``pbm-pie-mle`` fits it.
    Guarantee: asymptotically the least possible regret, :math:`O(\log T)`, with steady users.
    Known failure: users that change. It explores at one position only, and stops when the bounds are tight.

    Parameters
    ----------
    examination
        Probability with which each position is examined, up to a common factor.

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 5;
    Combes, Magureanu, Proutiere, Laroche: Learning to rank: regret lower bounds and efficient algorithms,
    SIGMETRICS 2015 (PIE).
    """

    name = "pbm-pie"
    needs = ("horizon", "examination")
    twin = "pbm-pie-mle"


@dataclass(frozen=True)
class PbmPieMle(FittedExamination, Parsimonious):
    r"""Explores at the least examined position only, and fits examination to its own clicks.

    It is PBM-PIE with the maximum-likelihood examination in place of the true one, fitted together with attraction
    whenever the number of rounds has grown by 2%. Exploration at one position would leave examination nearly unknown,
    and would not correct a wrong order of positions. So it shows one of the n cyclic lists as long as some pair in it

    .. math::

        \text{was shown less than } \sqrt{\log t} \text{ times},

    which together show every item at every position, and cost little.

    Requires: the horizon.
    Guarantee: none is known for the fit.
    Known failure: it may keep a wrong order of positions for long, since cyclic lists become rare; ``pbm-ucb-mle`` is
    safer.

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016 (the exploration);
    Komiyama, Honda, Takeda: Position-based multiple-play bandit problem with unknown position bias, NeurIPS 2017
    (the forced lists).
    """

    name = "pbm-pie-mle"
    needs = ("horizon",)


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    least = 0.0 if state.examined.known else math.sqrt(math.log(state.counts.rounds[0] + 1.0))
    lacking = lacking_list(state.counts, least, rng, ranking)
    if lacking == 0:
        explore_last(state, rng, ranking, propensity)
        return
    for j in range(ranking.size):
        propensity[j] = 1.0 / lacking


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, examination = state.counts, state.examined.positions.examination
    record(counts, ranking, clicks)
    add_up_shown(state.totals, counts, examination, ranking)
    restarts = new_epoch(state.epochs) and state.epochs.growth == 1.0  # the doubling trick only extends the horizon
    if restarts:
        forget(counts)
        counts.learned[0] = 0
    if refit(counts, state.examined) or restarts:
        add_up_all(state.totals, counts, examination)


@inner_kernel
def explore_last(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Fill in a ranking by the rule of PBM-PIE, and its propensities."""
    counts, positions, work = state.counts, state.examined.positions, state.work
    level = (1.0 + state.epsilon) * math.log(min(state.epochs.horizon[0], state.memory))
    n, m = counts.shown.shape
    score, items, order = work.score, work.items, positions.order
    for i in range(n):
        exposure = state.totals.exposure[i]
        score[i] = state.totals.clicks[i] / exposure if exposure > 0.0 else math.inf
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
