"""LBINFV and its predecessor LBINF: optimistic leaders with an adaptive rate for every pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import Shape
from ..geometry.leader_state import lead, reset
from ..geometry.regularizers import HybridBarrier
from ..kernels import Floats, Ints, inner_kernel
from .parts.leader import Leader, State, leader_rule
from .parts.settings import Planning, choice, number


@inner_kernel
def gamma_of(rule: Any, state: State) -> float:
    return rule.gamma if rule.gamma > 0.0 else max(1.0, math.log(state.epochs.horizon[0]))


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    n, m = state.shape
    loss, predicted = state.loss, rule.predicted
    gamma = gamma_of(rule, state)
    for i in range(n):
        for j in range(m):
            loss[i, j] += predicted[i, j] if ranking[j] >= 0 else 0.0
    for j in range(m):
        i, x = ranking[j], propensity[j]
        if i < 0:
            continue
        for k in absent:
            loss[k, j] += 1.0 - clicks[j] - predicted[k, j]
        error = 1.0 - clicks[j] - predicted[i, j]
        loss[i, j] += error / x
        rule.spread[i, j] += error * error * min(1.0, 2.0 * max(1.0 - x, 0.0) / (gamma * x * x)) / gamma
        rule.rates[i, j] = 1.0 / math.sqrt(rule.spread[i, j])
        rule.shown[i, j] += 1.0
        predicted[i, j] += error * (rule.step if rule.step > 0.0 else 1.0 / (rule.shown[i, j] + 1.0))


def solve(rule: Any, state: State) -> None:
    n, m = state.shape
    gamma = gamma_of(rule, state)
    for i in range(n):
        for j in range(m):
            rule.sums[i, j] = state.loss[i, j] + rule.predicted[i, j]
    lead(HybridBarrier(gamma, rule.level * (1.0 + gamma)), rule.sums, rule.rates, state.leading)


def begin(rule: Any, state: State) -> None:
    gamma = gamma_of(rule, state)
    state.loss[:] = 0.0
    rule.predicted[:] = rule.guess
    rule.shown[:] = 0.0
    rule.spread[:] = rule.first
    rule.rates[:] = 1.0 / math.sqrt(rule.first)
    reset(HybridBarrier(gamma, rule.level * (1.0 + gamma)), 1.0 / math.sqrt(rule.first), state.leading)


@leader_rule(observe=observe, solve=solve, begin=begin)
class Rule(NamedTuple):
    """LBINF and LBINFV, with the settings in which they differ."""

    level: float  # 1: the regulariser is level at x = 0; 0: it is not
    gamma: float  # 0: the logarithm of the horizon
    first: float  # the square of b in the first round
    guess: float  # the prediction in the first round
    step: float  # of the predictions; 0: least squares
    predicted: Floats  # (n_items, n_positions) predictions of the losses
    shown: Floats  # (n_items, n_positions) impressions
    spread: Floats  # (n_items, n_positions) squares of b
    rates: Floats  # (n_items, n_positions) 1 / b
    sums: Floats  # (n_items, n_positions) loss + predicted


LEAVES = {"rule.predicted": "ij", "rule.shown": "ij", "rule.spread": "ij", "rule.rates": "ij"}


def make_rule(shape: Shape, *, level: float, gamma: float | None, first: float, guess: float, step: float) -> Rule:
    """Return the rule of LBINF or LBINFV, before an epoch has begun."""
    return Rule(level, float(gamma or 0.0), float(first), float(guess), float(step), *np.zeros((5, *shape)))


@dataclass(frozen=True)
class Lbinfv(Leader, Planning):
    r"""Optimistic leader with a log-barrier and a rate for every pair, which adapts to the variance of its clicks.

    Every pair has a prediction of its loss, which is added to the past losses before the leader is computed, and its
    own rate, which falls with the squared differences of observed losses and predictions. The regret depends on the
    variance of clicks: where clicks are predictable, it is small.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} + p_t \rangle + \sum_{ij} b_{t,ij} \, \phi(x_{ij}) \\
        \phi(x) &= x - 1 - \log x + \gamma \left( x + (1 - x) \log(1 - x) \right),
            \qquad \gamma = \log T, \qquad b_1 = 1 + \epsilon \\
        \hat L_{t,ij} &= \hat L_{t-1,ij} + p_{t,ij}
            + \frac{1 - \text{click}_j - p_{t,ij}}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j] \\
        b_{t+1,ij}^2 &= b_{t,ij}^2 + \frac{1}{\gamma} (1 - \text{click}_j - p_{t,ij})^2
            \min\left( 1, \frac{2 (1 - x_{t,ij})}{\gamma x_{t,ij}^2} \right)
            [\text{item } i \text{ is shown at position } j]

    The prediction is the mean of the observed losses and one loss of 1/2 (``"ls"``), or moves towards each of them by
    ``step`` (``"gd"``). Rates use the prediction from before the loss was observed; with ``"gd"``, the authors' program
    uses the one from after it. Late feedback is weighted with the propensity of its decision, and compared with the
    prediction of the round in which it arrives.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: :math:`O(\log T)` with steady users, with the variances of clicks in the constant, and
    :math:`O(m \sqrt{nT \log T})` with any; for semi-bandits in general.
    Known failure: without restarts it does not forget: it follows the best fixed list, not the best list of a season.

    Parameters
    ----------
    prediction
        ``"ls"`` (least squares) or ``"gd"`` (gradient descent).
    step
        Step size of gradient descent, below 1.
    eps
        :math:`\epsilon`, the distance of the first rates from the largest possible ones.
    gamma
        :math:`\gamma`; the logarithm of the horizon (at least 1) if None.

    Examples
    --------
    Users who always click on items 0, 1 and 2 and on nothing else cause no regret once that is known:

    >>> import bothworlds
    >>> certain = bothworlds.worlds.stochastic([1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    >>> late = bothworlds.play("lbinfv", certain, rounds=4_000, replications=4, checkpoints=[2_000]).regret()
    >>> bool((late[:, 1] - late[:, 0]).max() < 0.02 * 2_000)
    True

    References
    ----------
    Tsuchiya, Ito, Honda: Further adaptive best-of-both-worlds algorithm for combinatorial semi-bandits, AISTATS 2023.
    """

    prediction: str = choice("ls", "gd")
    step: float = number(0.25, 1e-6, 0.999999)
    eps: float = number(0.2, 1e-6, 1e6)
    gamma: float | None = number(None, 1e-9, 1e6)

    name = "lbinfv"
    learned_leaves = LEAVES
    needs = ("horizon",)

    def rule(self, shape: Shape) -> Rule:
        step = 0.0 if self.prediction == "ls" else self.step
        return make_rule(shape, level=1.0, gamma=self.gamma, first=(1.0 + self.eps) ** 2, guess=0.5, step=step)


@dataclass(frozen=True)
class Lbinf(Leader, Planning):
    r"""Optimistic leader with a log-barrier, whose predictions follow the most recent losses.

    The predecessor of LBINFV, with the same estimates and the same adaptive rate for every pair. Its predictions move a
    quarter of the way towards each observed loss, its regulariser is not level at 0, and its first rates are smaller.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} + p_t \rangle
            + \sum_{ij} b_{t,ij} \left( -\log x_{ij} + \gamma (1 - x_{ij}) \log(1 - x_{ij}) \right) \\
        \gamma &= \log T, \qquad p_1 = \frac14, \qquad b_1^2 = 2 \\
        p_{t+1,ij} &= p_{t,ij} + \frac14 (1 - \text{click}_j - p_{t,ij})
            \, [\text{item } i \text{ is shown at position } j] \\
        b_{t+1,ij}^2 &= b_{t,ij}^2 + \frac{1}{\gamma} (1 - \text{click}_j - p_{t,ij})^2
            \min\left( 1, \frac{2 (1 - x_{t,ij})}{\gamma x_{t,ij}^2} \right)
            [\text{item } i \text{ is shown at position } j]

    and :math:`\hat L` as in LBINFV. Rates use the prediction from before the loss was observed; a published program
    uses the one from after it. The first prediction is that of the program; in print it may be 1/2.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: :math:`O(\log T)` with steady users, :math:`O(m \sqrt{nT \log T})` with any, and less where losses are
    small or move little; for semi-bandits in general.
    Known failure: without restarts it does not forget; predictions that do not converge make its rates fall forever.

    Parameters
    ----------
    step
        Share of the way by which a prediction moves towards an observed loss, below 1.
    guess
        The first prediction.
    gamma
        :math:`\gamma`; the logarithm of the horizon (at least 1) if None.

    References
    ----------
    Ito: Hybrid regret bounds for combinatorial semi-bandits and adversarial linear bandits, NeurIPS 2021.
    """

    step: float = number(0.25, 1e-6, 0.999999)
    guess: float = number(0.25, 0.0, 1.0)
    gamma: float | None = number(None, 1e-9, 1e6)

    name = "lbinf"
    learned_leaves = LEAVES
    needs = ("horizon",)

    def rule(self, shape: Shape) -> Rule:
        return make_rule(shape, level=0.0, gamma=self.gamma, first=2.0, guess=self.guess, step=self.step)
