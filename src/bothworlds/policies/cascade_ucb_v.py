"""CascadeUCB-V: optimism about attraction with bounds from its variance, if users leave with their first click."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.examined_counts import LEAVES, ExaminedCounts, make_examined_counts, record_to_first_click
from .parts.placement import RankWork, make_rank_work, place_largest
from .parts.settings import number


class State(NamedTuple):
    shape: Shape
    zeta: float
    counts: ExaminedCounts
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class CascadeUcbV(CompiledPolicy):
    r"""Shows the items with the largest Bernstein bounds on attraction, learned down to the first click of each page.

    As CascadeUCB1, it learns from the items down to the first click of a page, and from all of them if there is none.
    The bonus has the empirical variance in it, so that it is small for items that attract rarely or nearly always.

    .. math::

        U_i = \hat\alpha_i + \sqrt{\frac{2 \zeta \, \hat\alpha_i (1 - \hat\alpha_i) \log t}{N_i}}
            + \frac{3 \zeta \log t}{N_i}

    The items with the m largest bounds are shown in falling order. Items that were never examined come first.

    Where the constants come from: by the empirical Bernstein inequality, the mean of s variables between 0 and 1, with
    empirical variance v, is further than :math:`\sqrt{2 v x / s} + 3 x / s` from its expectation with a probability of
    at most :math:`3 e^{-x}` (Audibert et al., Theorem 1). Here :math:`x = \zeta \log t`. With the default of 2, a
    bound fails with a probability of at most :math:`3 / t^2` for each number of times that the item was examined, and
    is :math:`\sqrt{4 v \log t / s} + 6 \log t / s`. A public implementation, that of a study of attacks on
    combinatorial bandits, has the same two constants for CascadeUCB-V. It also cuts bounds at 1; here they are not cut,
    which makes a difference only between items whose bounds are above 1. t is the number of rounds played.

    Requires: the order of positions.
    Guarantee: :math:`\tilde O(\sqrt{n T})` in the cascade model, whatever the gaps, which no policy can improve but
    for logarithms. Of CascadeUCB1, whose bounds are those of Hoeffding, it is not true (Vial et al.).
    Known failure: as CascadeUCB1; the last term makes it explore long where there are few pages for each item.

    Parameters
    ----------
    zeta
        The factor of the logarithm. Audibert et al. need more than 1 for logarithmic regret of a single item.

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

    zeta: float = number(2.0, 1e-6, 1e6)

    name = "cascade-ucb-v"
    learned_leaves = LEAVES
    needs = ("order",)

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, float(self.zeta), make_examined_counts(n), make_rank_work(n))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    examined, clicked = state.counts.examined, state.counts.clicked
    level = state.zeta * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(examined.size):
        state.work.score[i] = math.inf
        if examined[i] > 0.0:
            a = clicked[i] / examined[i]
            state.work.score[i] = a + math.sqrt(2.0 * a * (1.0 - a) * level / examined[i]) + 3.0 * level / examined[i]
    place_largest(state.work, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record_to_first_click(state.counts, ranking, clicks)
