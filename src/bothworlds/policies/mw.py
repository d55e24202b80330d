"""MW: multiplicative weights for ordered slates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..geometry.leader_state import Leading, make_leading, project, ready, reset, show
from ..geometry.regularizers import Shannon
from ..kernels import Floats, Ints, kernel
from .parts.epochs import Epochs, new_epoch
from .parts.settings import Planning, number

__all__ = ["Mw"]


class State(NamedTuple):
    shape: Shape
    mixing: float
    rate: float
    share: float
    surprisal: Floats  # (n_items, n_positions) -log x, since x may be as small as 1e-40
    epochs: Epochs
    leading: Leading  # its marginals are x', which include the uniform lists


@dataclass(frozen=True)
class Mw(Planning):
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
    tolerance
        The largest violation of the optimality conditions before the point is made feasible.
    horizon
        Number of rounds to plan for; ``play`` fills it in. None for the doubling trick, which starts with 1024.
    restart
        Number of rounds after which everything is forgotten; None for never.

    Examples
    --------
    >>> import bothworlds
    >>> result = bothworlds.play("mw", "paper/stochastic", rounds=10_000, seeds=4)
    >>> uniform = bothworlds.play("uniform", "paper/stochastic", rounds=10_000, seeds=4)
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
    tolerance: float = number(1e-6, 1e-12, 0.1)

    name = "mw"
    needs = ("horizon",)
    needs_propensity: ClassVar[bool] = True

    def start(self, shape: Shape) -> State:
        state = State(
            shape=shape,
            mixing=float(self.mixing),
            rate=float(self.rate),
            share=float(self.share),
            surprisal=np.zeros(shape),
            epochs=self.epochs(),
            leading=make_leading(*shape, self.tolerance),
        )
        begin(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show(state.leading, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    n, horizon = state.shape.n_items, state.epochs.horizon[0]
    gamma = min(0.5, state.mixing * math.sqrt(n * math.log(n) / horizon))
    eta = state.rate * math.sqrt((1.0 - gamma) * math.log(n) / (n * horizon))
    for j in range(ranking.size):
        state.surprisal[ranking[j], j] += eta * (1.0 - clicks[j]) / propensity[j]
    if new_epoch(state.epochs):
        begin(state)
    else:
        project(Shannon(), state.surprisal, 1.0, state.share, gamma, state.leading)
    ready(state.leading)


@kernel
def begin(state: State) -> None:
    """Reset the state."""
    state.surprisal[:] = reset(Shannon(), 1.0, state.leading)
