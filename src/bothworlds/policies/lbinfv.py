"""LBINFV: an optimistic leader with an adaptive rate for every pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..geometry.leader_state import Leading, is_due, lead, make_leading, ready, reset, show
from ..geometry.regularizers import HybridBarrier
from ..kernels import Floats, Ints, kernel
from .parts.epochs import Epochs, new_epoch
from .parts.settings import Planning, choice, number, whole

__all__ = ["Lbinfv", "Plan", "State", "make_state"]


class Plan(NamedTuple):
    """The settings of LBINF and LBINFV, including those in which the two differ."""

    level: float  # 1: the regulariser is level at x = 0; 0: it is not
    gamma: float  # 0: the logarithm of the horizon
    first: float  # the square of b in the first round
    guess: float  # the prediction in the first round
    step: float  # of the predictions; 0: least squares


class State(NamedTuple):
    shape: Shape
    plan: Plan
    loss: Floats  # (n_items, n_positions) cumulative loss estimates
    predicted: Floats  # (n_items, n_positions) predictions of the losses
    shown: Floats  # (n_items, n_positions) impressions
    spread: Floats  # (n_items, n_positions) squares of b
    rates: Floats  # (n_items, n_positions) 1 / b
    epochs: Epochs
    leading: Leading
    sums: Floats  # (n_items, n_positions) loss + predicted


@dataclass(frozen=True)
class Lbinfv(Planning):
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
    tolerance
        The largest violation of the optimality conditions before the point is made feasible.
    every
        Number of rounds from one leader to the next. In between, lists are drawn from the last leader and estimates are
        divided by its probabilities, so they stay unbiased. Its cost in regret: docs/research/performance.md.
    horizon
        Number of rounds to plan for; ``play`` fills it in. None for the doubling trick, which starts with 1024.
    restart
        Number of rounds after which everything is forgotten; None for never.

    Examples
    --------
    Users who always click on items 0, 1 and 2 and on nothing else cause no regret once that is known:

    >>> import bothworlds
    >>> certain = bothworlds.worlds.stochastic([1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    >>> late = bothworlds.play("lbinfv", certain, rounds=4_000, seeds=4, checkpoints=[2_000]).regret()
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
    tolerance: float = number(1e-6, 1e-12, 0.1)
    every: int = whole(1, 1, 10**9)

    name = "lbinfv"
    needs = ("horizon",)
    needs_propensity: ClassVar[bool] = True

    def start(self, shape: Shape) -> State:
        step = 0.0 if self.prediction == "ls" else float(self.step)
        plan = Plan(level=1.0, gamma=float(self.gamma or 0.0), first=(1.0 + self.eps) ** 2, guess=0.5, step=step)
        return make_state(shape, plan, self.epochs(), self.tolerance, self.every)


def make_state(shape: Shape, plan: Plan, epochs: Epochs, tolerance: float, every: int) -> State:
    """Return the initial state of LBINF or LBINFV."""
    loss, predicted, shown, spread, rates, sums = np.zeros((6, *shape))
    leading = make_leading(*shape, tolerance, every=every)
    state = State(shape, plan, loss, predicted, shown, spread, rates, epochs, leading, sums)
    begin(state)
    return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show(state.leading, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    n, m = state.shape
    plan, loss, predicted, sums = state.plan, state.loss, state.predicted, state.sums
    gamma = gamma_of(state)
    for i in range(n):
        for j in range(m):
            loss[i, j] += predicted[i, j]
    for j in range(m):
        i, x = ranking[j], propensity[j]
        error = 1.0 - clicks[j] - predicted[i, j]
        loss[i, j] += error / x
        state.spread[i, j] += error * error * min(1.0, 2.0 * max(1.0 - x, 0.0) / (gamma * x * x)) / gamma
        state.rates[i, j] = 1.0 / math.sqrt(state.spread[i, j])
        state.shown[i, j] += 1.0
        predicted[i, j] += error * (plan.step if plan.step > 0.0 else 1.0 / (state.shown[i, j] + 1.0))
    if new_epoch(state.epochs):
        begin(state)
    elif is_due(state.leading, state.epochs.rounds[0]):
        for i in range(n):
            for j in range(m):
                sums[i, j] = loss[i, j] + predicted[i, j]
        lead(HybridBarrier(gamma, plan.level * (1.0 + gamma)), sums, state.rates, state.leading)
    else:
        return
    ready(state.leading)


@kernel
def begin(state: State) -> None:
    """Reset the state, and plan for the horizon of the epoch."""
    plan, gamma = state.plan, gamma_of(state)
    state.loss[:] = 0.0
    state.predicted[:] = plan.guess
    state.shown[:] = 0.0
    state.spread[:] = plan.first
    state.rates[:] = 1.0 / math.sqrt(plan.first)
    reset(HybridBarrier(gamma, plan.level * (1.0 + gamma)), 1.0 / math.sqrt(plan.first), state.leading)


@kernel
def gamma_of(state: State) -> float:
    return state.plan.gamma if state.plan.gamma > 0.0 else max(1.0, math.log(state.epochs.horizon[0]))
