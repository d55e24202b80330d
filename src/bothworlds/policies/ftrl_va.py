"""FTRL-VA: a regularised leader whose losses are predicted, and whose rate adapts to the errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import Shape
from ..geometry.leader_state import lead, reset
from ..geometry.regularizers import Tsallis
from ..kernels import Floats, Ints
from .parts.counts import Counts, make_counts, record
from .parts.leader import Leader, State, leader_rule
from .parts.predicted_losses import add_losses


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    x = state.leading.marginals
    add_losses(state.loss, rule.spread, rule.counts, x, x, 1.0, 1.0, ranking, propensity, clicks, absent)
    record(rule.counts, ranking, clicks)


def solve(rule: Any, state: State) -> None:
    lead(Tsallis(), state.loss, 1.0 / math.sqrt(rule.spread[0]), state.leading)


def begin(rule: Any, state: State) -> None:
    state.loss[:] = 0.0
    rule.spread[0] = 1.0
    rule.counts.shown[:] = 0.0
    rule.counts.clicked[:] = 0.0
    reset(Tsallis(), 1.0, state.leading)


@leader_rule(observe=observe, solve=solve, begin=begin)
class Rule(NamedTuple):
    spread: Floats  # (1,) inverse square of the learning rate, R
    counts: Counts


@dataclass(frozen=True)
class FtrlVa(Leader):
    r"""FTRL-PBM with predicted losses: only errors of the predictions are weighted, and only they lower the rate.

    FTRL-PBM divides every missing click by the probability of its placement. Here every pair has a prediction of its
    loss, from its own clicks. The prediction is added for all pairs in every round, shown or not; for pairs that were
    shown, the error of the prediction is added, divided by the probability. Where clicks are rare or nearly certain,
    errors are small, and the rate stays large.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} \rangle - \sqrt{R_{t-1}} \sum_{ij} \sqrt{x_{ij}},
            \qquad R_0 = 1 \\
        b_{t,ij} &= 1 - \frac{C_{ij} + \frac12}{N_{ij} + 1}, \qquad
        b'_{t,ij} = \min\left( b_{t,ij}, \frac{p_{t,ij} \sqrt{R_{t-1}}}{4 \sqrt{x_{t,ij}}} \right), \qquad p_t = x_t \\
        \hat L_{t,ij} &= \hat L_{t-1,ij} + b'_{t,ij}
            + \frac{1 - \text{click}_j - b'_{t,ij}}{p_{t,ij}} \, [\text{item } i \text{ is shown at position } j] \\
        R_t &= R_{t-1} + \max\left( 0.1, \; \frac4m \sum_j (1 - \text{click}_j - b_{t,i_j j})^2 \right)

    N and C count impressions and clicks. The cap on b' keeps one estimate from moving the leader by more than a
    constant factor. Late feedback is weighted with the propensity of its decision, and compared with the prediction of
    the round in which it arrives.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(m \sqrt{nT})` against any fixed list, with a larger constant than ``ftrl-pbm``; the proof and
    the constant are in ``bothworlds.theory``.
    Known failure: without restarts it does not forget: it follows the best fixed list, not the best list of a season.

    References
    ----------
    Zimmert, Seldin: Tsallis-INF: an optimal algorithm for stochastic and adversarial bandits, JMLR 22, 2021 (the
    regulariser). Ito, Tsuchiya, Honda: Adversarially robust multi-armed bandit algorithm with variance-dependent regret
    bounds, COLT 2022 (predictions and adaptive rates). This combination is the package's own.
    """

    name = "ftrl-va"
    learned_leaves: ClassVar[Mapping[str, str] | None] = {
        "rule.spread": "",
        "rule.counts.shown": "ij",
        "rule.counts.clicked": "ij",
    }

    def rule(self, shape: Shape) -> Rule:
        return Rule(np.ones(1), make_counts(*shape))
