"""CascadeUCB-V: optimism about attraction with bounds from its variance, if users leave with their first click."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.examined_counts import ExaminedCounts, make_examined_counts, record_to_first_click
from .parts.placement import place_largest
from .parts.settings import number

__all__ = ["CascadeUcbV"]


class State(NamedTuple):
    shape: Shape
    zeta: float
    counts: ExaminedCounts
    bounds: Floats  # (n_items,) work
    order: Ints  # (n_items,) work


@dataclass(frozen=True, kw_only=True)
class CascadeUcbV(CompiledPolicy):
    r"""Shows the items with the largest Bernstein bounds on attraction, learned down to the first click of each page.

    As CascadeUCB1, it learns from the items down to the first click of a page, and from all of them if there is none.
    The bonus has the empirical variance in it, so that it is small for items that attract rarely or nearly always.

    .. math::

        U_i = \hat\alpha_i + \sqrt{\frac{2 \zeta \, \hat\alpha_i (1 - \hat\alpha_i) \log t}{N_i}}
            + \frac{3 \zeta \log t}{N_i}

    The items with the m largest bounds are shown in falling order. Items that were never examined come first.

    Requires: the order of positions.
    Guarantee: :math:`\tilde O(\sqrt{n T})` in the cascade model, which no policy can improve, whatever the gaps.
    Known failure: as CascadeUCB1; the last term makes it explore long where there are few pages for each item.

    Parameters
    ----------
    zeta
        The factor of the bonus. With 2 it is :math:`\sqrt{4 \hat v \log t / N} + 6 \log t / N`.

    Examples
    --------
    >>> import bothworlds
    >>> bothworlds.policy("cascade-ucb-v", zeta=1.0).label
    'cascade-ucb-v(zeta=1.0)'

    References
    ----------
    Vial, Sanghavi, Shakkottai, Srikant: Minimax regret for cascading bandits, NeurIPS 2022.
    Audibert, Munos, Szepesvari: Exploration-exploitation tradeoff using variance estimates, 2009.
    """

    zeta: float = 2.0

    name = "cascade-ucb-v"
    needs = ("order",)

    def __post_init__(self) -> None:
        number(self, "zeta", above=0.0)

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, float(self.zeta), make_examined_counts(n), np.zeros(n), np.zeros(n, np.int64))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    examined, clicked = state.counts.examined, state.counts.clicked
    level = state.zeta * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(examined.size):
        state.bounds[i] = math.inf
        if examined[i] > 0.0:
            a = clicked[i] / examined[i]
            state.bounds[i] = a + math.sqrt(2.0 * a * (1.0 - a) * level / examined[i]) + 3.0 * level / examined[i]
    place_largest(state.bounds, state.order, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record_to_first_click(state.counts, ranking, clicks)
