"""Mirror descent from point to point: MW, multiplicative weights for ordered slates, and OSMD, with a 0-potential."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import Shape
from ..geometry.leader_state import project, reset
from ..geometry.regularizers import Shannon, Tsallis
from ..kernels import Floats, Ints, inner_kernel
from .parts.leader import Leader, State, add_weighted, leader_rule
from .parts.settings import Planning, number

# The losses of the state are the potential of x, to which steps are added before it is projected; for MW they are
# -log x, since x may be as small as 1e-40, and the marginals are x', with the uniform lists.
SCALE = 0.5  # x = z^-2 is the marginal of the regulariser -sqrt(x) at this rate


@inner_kernel
def gamma_of(rule: Any, state: State) -> float:
    n = state.shape.n_items
    return min(0.5, rule.mixing * math.sqrt(n * math.log(n) / state.epochs.horizon[0]))


def observe_mw(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    n = state.shape.n_items
    eta = rule.rate * math.sqrt((1.0 - gamma_of(rule, state)) * math.log(n) / (n * state.epochs.horizon[0]))
    add_weighted(state, eta, ranking, propensity, clicks, absent)


def solve_mw(rule: Any, state: State) -> None:
    project(Shannon(), state.loss, 1.0, rule.share, gamma_of(rule, state), state.leading)


def begin_mw(rule: Any, state: State) -> None:
    state.loss[:] = reset(Shannon(), 1.0, state.leading)


@leader_rule(observe=observe_mw, solve=solve_mw, begin=begin_mw)
class MwRule(NamedTuple):
    mixing: float
    rate: float
    share: float


@dataclass(frozen=True)
class Mw(Leader, Planning):
    r"""Multiplicative weights for ordered slates: losses shrink a probability by a factor, uniform lists are mixed in.

    The extension of Exp3 to rankings. Every missing click multiplies the probability of its pair by a factor below 1,
    and the probabilities are then projected to the ranking polytope, in relative entropy. A fraction of uniform lists
    is a lower bound on the probability of every pair.

    .. math::

        x'_t &= (1 - \gamma) x_t + \gamma / n, \qquad \gamma = \min\left( \frac12, \sqrt{n \log n / T} \right) \\
        w_{ij} &= x_{t,ij} \exp\left( - \eta \frac{1 - \text{click}_j}{x'_{t,ij}}
            \, [\text{item } i \text{ is shown at position } j] \right),
            \qquad \eta = \sqrt{(1 - \gamma) \log n / (n T)} \\
        y &= \arg\min_y \; \sum_{ij} \left( y_{ij} \log (y_{ij} / w_{ij}) - y_{ij} \right),
            \qquad x_{t+1} = (1 - \rho) \, y + \rho / n

    over the ranking polytope, in logarithms throughout. The publication's :math:`\gamma` may exceed 1 where the
    horizon is short; it is at most 1/2 here. The share :math:`\rho` is not part of it.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: :math:`4 m \sqrt{n T \log n}` with any users; none with steady ones.
    Known failure: it never stops showing a fraction of uniform lists.

    Parameters
    ----------
    mixing
        A factor of :math:`\gamma`; 1 as published, 0 for no uniform lists.
    rate
        A factor of :math:`\eta`; 1 as published.
    share
        :math:`\rho`, about one over the length of a season; 0 as published.

    References
    ----------
    Kale, Reyzin, Schapire: Non-stochastic bandit slate problems, NIPS 2010.

    Herbster, Warmuth: Tracking the best expert, Machine Learning 32, 1998 (the share).
    """

    mixing: float = number(1.0, 0.0, 1e6)
    rate: float = number(1.0, 1e-6, 1e3)
    share: float = number(0.0, 0.0, 0.999999)

    name = "mw"
    needs = ("horizon",)

    def rule(self, shape: Shape) -> MwRule:
        return MwRule(float(self.mixing), float(self.rate), float(self.share))


def observe_osmd(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    eta = rule.rate / math.sqrt(state.epochs.horizon[0])
    add_weighted(state, eta, ranking, propensity, clicks, absent)


def solve_osmd(rule: Any, state: State) -> None:
    project(Tsallis(), state.loss, SCALE, rule.share, 0.0, state.leading)


def begin_osmd(rule: Any, state: State) -> None:
    state.loss[:] = reset(Tsallis(), SCALE, state.leading)


@leader_rule(observe=observe_osmd, solve=solve_osmd, begin=begin_osmd)
class OsmdRule(NamedTuple):
    rate: float
    share: float


@dataclass(frozen=True)
class Osmd(Leader, Planning):
    r"""Mirror descent with a 0-potential: a step from the last point, projected to the ranking polytope.

    It has the entropy of FTRL-PBM, but a fixed rate that requires the horizon, and it keeps the last point instead of
    all past losses. The two agree as long as no item is shown with certainty; from then on the projection loses the
    multiplier that keeps that item from being shown twice. With a ``share`` of uniform lists in every point it can
    follow a best list that changes.

    .. math::

        w_{ij} &= \left( x_{t,ij}^{-1/2} + \eta \hat\ell_{t,ij} \right)^{-2}, \qquad \eta = \sqrt{2 / T}, \qquad
            \hat\ell_{t,ij} = \frac{1 - \text{click}_j}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j] \\
        y &= \arg\min_y \; \sum_{ij} \left( - 2 \sqrt{y_{ij}} + y_{ij} / \sqrt{w_{ij}} \right) \\
        x_{t+1} &= (1 - \rho) \, y + \rho / n

    over the ranking polytope.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: :math:`2 \sqrt 2 \, m \sqrt{nT}` with any users; none with steady ones.
    Known failure: its rate is chosen for the last round, so it learns slowly at first.

    Parameters
    ----------
    rate
        :math:`\eta = \text{rate} / \sqrt T`.
    share
        :math:`\rho`, about one over the length of a season; 0 as published.

    Examples
    --------
    A share of uniform lists is a lower bound on every probability:

    >>> import numpy as np
    >>> import bothworlds
    >>> def least(share):
    ...     policy = bothworlds.policy("osmd", horizon=200, share=share)
    ...     state, rng = policy.init(4, 2), np.random.default_rng(0)
    ...     for _ in range(200):
    ...         decision = policy.decide(state, rng)
    ...         policy.learn(state, decision, decision.ranking == [0, 1])
    ...     return state.leading.marginals.min()
    >>> bool(least(share=0.0) < 0.02 / 4 <= least(share=0.02))
    True

    References
    ----------
    Audibert, Bubeck, Lugosi: Regret in online combinatorial optimization, Mathematics of Operations Research 39, 2014.

    Herbster, Warmuth: Tracking the best expert, Machine Learning 32, 1998 (the share).
    """

    rate: float = number(math.sqrt(2.0), 1e-6, 1e3)
    share: float = number(0.0, 0.0, 0.999999)

    name = "osmd"
    needs = ("horizon",)

    def rule(self, shape: Shape) -> OsmdRule:
        return OsmdRule(float(self.rate), float(self.share))
