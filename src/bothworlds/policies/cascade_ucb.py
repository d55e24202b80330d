"""CascadeUCB1: optimism about attraction, if users leave with their first click."""

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
    width: float
    counts: ExaminedCounts
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class CascadeUcb(CompiledPolicy):
    r"""Shows the items with the largest Hoeffding bounds on attraction, learned down to the first click of each page.

    In the cascade model the user reads from the top, clicks the first item that attracts, and leaves. The items above
    the first click were examined and did not attract, and nothing is known about those below it. A page without a click
    was read to the end.

    .. math::

        U_i = \hat\alpha_i + \sqrt{\frac{w \log t}{N_i}}, \qquad
        \hat\alpha_i = \frac{\text{first clicks on } i}{N_i}

    where :math:`N_i` counts the pages on which item i was examined. The items with the m largest bounds are shown in
    falling order. Items that were never examined come first.

    Requires: the order of positions.
    Guarantee: :math:`O(\frac{n - m}{\Delta} \log T)` in the cascade model, with steady users.
    Known failure: further clicks of a page are ignored. If users examine lower positions less often than the model
    says, items shown there look worse than they are, and stay there.

    Parameters
    ----------
    width
        w in the bonus; the published one is 1.5.

    Examples
    --------
    Below the first click nothing is learned:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("cascade-ucb")
    >>> state = policy.init(4, 3)
    >>> shown = bothworlds.Decision(np.array([2, 0, 1]), np.full(3, np.nan))
    >>> policy.learn(state, shown, [0, 1, 1]).counts.examined
    array([1., 0., 1., 0.])

    References
    ----------
    Kveton, Szepesvari, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model, ICML 2015.
    """

    width: float = number(1.5, 1e-6, 1e6)

    name = "cascade-ucb"
    learned_leaves = LEAVES
    needs = ("order",)

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, float(self.width), make_examined_counts(n), make_rank_work(n))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    examined, clicked = state.counts.examined, state.counts.clicked
    bonus = state.width * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(examined.size):
        state.work.score[i] = math.inf
        if examined[i] > 0.0:
            state.work.score[i] = clicked[i] / examined[i] + math.sqrt(bonus / examined[i])
    place_largest(state.work, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record_to_first_click(state.counts, ranking, clicks)
