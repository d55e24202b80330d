"""CombTS: Thompson sampling of every pair of item and position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .parts.counts import Counts, record
from .parts.placement import PlacementWork, make_placement_work, place_best
from .parts.samplers import beta
from .parts.settings import Forgetting, number


class State(NamedTuple):
    shape: Shape
    prior: float
    counts: Counts
    work: PlacementWork


@dataclass(frozen=True, kw_only=True)
class CombTs(Forgetting):
    r"""Shows the best list for click probabilities that are drawn from the posterior of each pair.

    Every pair of item and position is an arm of its own, with a Beta posterior of its click probability. Each round
    draws one number for every pair and solves the assignment problem for them. A pair is shown about as often as it is
    part of the best list under the posterior.

    .. math::

        U_{ij} \sim \text{Beta}(a + S_{ij}, a + F_{ij}), \qquad \text{list} = \arg\max \sum_j U_{i_j j}

    where :math:`S_{ij}` and :math:`F_{ij}` count clicks and missing clicks.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{m \cdot nm}{\Delta} \log T)` with steady users, up to terms that do not grow with T.
    Known failure: it learns nm numbers where n + m are enough; without forgetting it is slow to notice a change.

    Parameters
    ----------
    prior
        a, of a Beta(a, a) prior; 1 is uniform.

    References
    ----------
    Wang, Chen: Thompson sampling for combinatorial semi-bandits, ICML 2018.
    """

    prior: float = number(1.0, 1e-6, 1e9)

    name = "comb-ts"

    def start(self, shape: Shape) -> State:
        return State(shape, float(self.prior), self.counts(shape), make_placement_work(*shape))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    shown, clicked = state.counts.shown, state.counts.clicked
    for i in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            missed = max(0.0, shown[i, j] - clicked[i, j])
            state.work.scores[i, j] = beta(rng, state.prior + clicked[i, j], state.prior + missed)
    place_best(state.work.scores, rng, ranking, state.work)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
