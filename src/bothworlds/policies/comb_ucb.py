"""CombUCB1: optimism about every pair of item and position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .parts.change_detector import ChangeDetector, detect_change
from .parts.counts import Counts, lacking_list, record
from .parts.placement import PlacementWork, make_placement_work, place_best
from .parts.settings import Detecting, number

CEILING = 1000.0  # largest bound: above those of all pairs that were shown, unless they are nearly forgotten


class State(NamedTuple):
    shape: Shape
    width: float
    counts: Counts
    detector: ChangeDetector
    work: PlacementWork


@dataclass(frozen=True, kw_only=True)
class CombUcb(Detecting):
    r"""Shows the list with the largest sum of Hoeffding's upper bounds on the click probabilities of its pairs.

    Every pair is an arm of its own: its average of clicks plus a bonus that shrinks every time it is shown. The list
    with the largest sum is the solution of an assignment problem, solved exactly in every round. The first n lists are
    cyclic and show every item once at every position.

    .. math::

        U_{ij} = \hat p_{ij} + \sqrt{\frac{w \log t}{N_{ij}}}, \qquad
        \text{list} = \arg\max \sum_j U_{i_j j}

    t counts the rounds that are remembered: with a window or a discount, bounds do not grow beyond their memory.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{m \cdot nm}{\Delta} \log T)` with steady users.
    Known failure: it learns nm numbers where n + m are enough, and explores long; without forgetting it is slow to
    notice that users have changed.

    Parameters
    ----------
    width
        w in the bonus; the published one is 1.5.
    window
        Number of most recent rounds to remember; None for all.
    discount
        A round that is s rounds ago has the weight discount to the power s.
    detect
        Whether to forget everything before a detected change; see ``parts/change_detector.py``.

    Examples
    --------
    The first n lists show every item once at every position:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy, rng = bothworlds.policy("comb-ucb"), np.random.default_rng(0)
    >>> state = policy.init(5, 3)
    >>> for _ in range(5):
    ...     state = policy.learn(state, policy.decide(state, rng), [0, 0, 0])
    >>> bool((state.counts.shown == 1.0).all())
    True

    References
    ----------
    Kveton, Wen, Ashkan, Szepesvari: Tight regret bounds for stochastic combinatorial semi-bandits, AISTATS 2015.
    """

    width: float = number(1.5, 1e-6, 1e6)

    name = "comb-ucb"

    def start(self, shape: Shape) -> State:
        return State(
            shape=shape,
            width=float(self.width),
            counts=self.counts(shape),
            detector=self.detector(shape),
            work=make_placement_work(*shape),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    shown, clicked = state.counts.shown, state.counts.clicked
    lacking = lacking_list(state.counts, 0.0, rng, ranking) if state.counts.learned[0] < shown.shape[0] else 0
    for j in range(ranking.size):
        propensity[j] = 1.0 / lacking if lacking > 0 else math.nan
    if lacking > 0:
        return
    bounds, bonus = state.work.scores, state.width * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            bounds[i, j] = CEILING
            if shown[i, j] > 0.0:
                bounds[i, j] = min(CEILING, clicked[i, j] / shown[i, j] + math.sqrt(bonus / shown[i, j]))
    place_best(bounds, rng, ranking, state.work)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    detect_change(state.detector, state.counts, ranking, clicks)
