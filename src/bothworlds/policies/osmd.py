"""OSMD: mirror descent with a 0-potential."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import Shape
from ..geometry.leader_state import project, reset
from ..geometry.regularizers import Tsallis
from ..kernels import Floats, Ints
from .parts.leader import Leader, State, add_weighted, leader_rule
from .parts.settings import Planning, number

SCALE = 0.5  # x = z^-2 is the marginal of the regulariser -sqrt(x) at this rate


# The losses of the state are the potential of x: steps are added to it, and it is projected.


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    eta = rule.rate / math.sqrt(state.epochs.horizon[0])
    add_weighted(state, eta, ranking, propensity, clicks, absent)


def solve(rule: Any, state: State) -> None:
    project(Tsallis(), state.loss, SCALE, rule.share, 0.0, state.leading)


def begin(rule: Any, state: State) -> None:
    state.loss[:] = reset(Tsallis(), SCALE, state.leading)


@leader_rule(observe=observe, solve=solve, begin=begin)
class Rule(NamedTuple):
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

    def rule(self, shape: Shape) -> Rule:
        return Rule(float(self.rate), float(self.share))
