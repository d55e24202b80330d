"""MW: multiplicative weights for ordered slates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import Shape
from ..geometry.leader_state import project, reset
from ..geometry.regularizers import Shannon
from ..kernels import Floats, Ints, inner_kernel
from .parts.leader import Leader, State, add_weighted, leader_rule
from .parts.settings import Planning, number

# The losses of the state are -log x, since x may be as small as 1e-40; the marginals are x', with the uniform lists.


@inner_kernel
def gamma_of(rule: Any, state: State) -> float:
    n = state.shape.n_items
    return min(0.5, rule.mixing * math.sqrt(n * math.log(n) / state.epochs.horizon[0]))


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    n = state.shape.n_items
    eta = rule.rate * math.sqrt((1.0 - gamma_of(rule, state)) * math.log(n) / (n * state.epochs.horizon[0]))
    add_weighted(state, eta, ranking, propensity, clicks, absent)


def solve(rule: Any, state: State) -> None:
    project(Shannon(), state.loss, 1.0, rule.share, gamma_of(rule, state), state.leading)


def begin(rule: Any, state: State) -> None:
    state.loss[:] = reset(Shannon(), 1.0, state.leading)


@leader_rule(observe=observe, solve=solve, begin=begin)
class Rule(NamedTuple):
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

    Examples
    --------
    >>> import bothworlds
    >>> result = bothworlds.play("mw", "paper/stochastic", rounds=10_000, replications=4)
    >>> uniform = bothworlds.play("uniform", "paper/stochastic", rounds=10_000, replications=4)
    >>> bool(result.regret()[:, -1].mean() < 0.8 * uniform.regret()[:, -1].mean())
    True

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

    def rule(self, shape: Shape) -> Rule:
        return Rule(float(self.mixing), float(self.rate), float(self.share))
