"""Tsallis-RV: FTRL-PBM with reduced-variance estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import Shape
from ..geometry.regularizers import Tsallis
from ..kernels import Floats, Ints
from .ftrl_pbm import begin, solve
from .parts.leader import Leader, State, leader_rule
from .parts.settings import number


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    loss, x = state.loss, state.leading.marginals
    n, m = x.shape
    often = rule.threshold / (state.epochs.rounds[0] + 1.0)
    for i in range(n):
        for j in range(m):
            loss[i, j] += rule.baseline if x[i, j] >= often and ranking[j] >= 0 else 0.0
    for j in range(m):
        i = ranking[j]
        if i >= 0:
            baseline = rule.baseline if x[i, j] >= often else 0.0
            loss[i, j] += (1.0 - clicks[j] - baseline) / propensity[j]
            for i in absent:
                loss[i, j] += 1.0 - clicks[j] - (rule.baseline if x[i, j] >= often else 0.0)


@leader_rule(observe=observe, solve=solve, begin=begin)
class Rule(NamedTuple):
    rate: float
    baseline: float
    threshold: float
    regularizer: Tsallis = Tsallis()


@dataclass(frozen=True)
class TsallisRv(Leader):
    r"""FTRL-PBM with reduced-variance estimates: only the difference of a loss from one half is weighted.

    FTRL-PBM adds a loss for pairs that were shown only, divided by the probability: a large number or zero. Here every
    pair that is likely enough gets a baseline of one half in every round, and for pairs that were shown the difference
    from the baseline is added, divided by the probability. The variance of these estimates is a quarter, so the rate
    may be twice as large.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} \rangle - \frac{1}{\eta_t} \sum_{ij} \sqrt{x_{ij}},
            \qquad \eta_t = \frac{1}{\sqrt t} \\
        B_{t,ij} &= \frac12 \text{ if } x_{t,ij} \ge \frac{16}{t}, \text{ else } 0 \\
        \hat L_{t,ij} &= \hat L_{t-1,ij} + B_{t,ij}
            + \frac{1 - \text{click}_j - B_{t,ij}}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j]

    for *all* pairs, shown or not; adding the baseline to pairs that were shown only, as some programs do, is biased.
    The published algorithm is for one position; the extension to rankings is ours. Late feedback is weighted with the
    propensity of its decision, and uses the baseline of the round in which it arrives.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: that of Tsallis-INF for one position; none is proven for several.
    Known failure: without restarts it does not forget: it follows the best fixed list, not the best list of a season.

    Parameters
    ----------
    rate
        :math:`\eta_t = \text{rate} / \sqrt t`.
    baseline, threshold
        The baseline of one half, and the 16 in the condition for it. With a smaller threshold an estimate may fall so
        far in one round that the solver needs more steps; the result is still correct.

    References
    ----------
    Zimmert, Seldin: Tsallis-INF: an optimal algorithm for stochastic and adversarial bandits, JMLR 22, 2021.

    Chen, Zhao, Li: Simultaneously learning stochastic and adversarial bandits under the position-based model,
    AAAI 2022.
    """

    rate: float = number(1.0, 1e-6, 1e3)
    baseline: float = number(0.5, 0.0, 1.0)
    threshold: float = number(16.0, 0.0, 1e15)

    name = "tsallis-rv"

    def rule(self, shape: Shape) -> Rule:
        return Rule(float(self.rate), float(self.baseline), float(self.threshold))
