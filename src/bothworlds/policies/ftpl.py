"""FTPL: follow the perturbed leader, with geometric resampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from .parts.epochs import Epochs, new_epoch
from .parts.placement import PlacementWork, make_placement_work, place_cheapest
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import Restarting, number


class Work(NamedTuple):
    again: Ints  # (n_positions,)
    draws: Floats  # (n_positions,)
    placement: PlacementWork


class State(NamedTuple):
    shape: Shape
    rate: float
    cap: float
    loss: Floats  # (n_items, n_positions) cumulative loss estimates
    epochs: Epochs
    stream: Stream  # for redrawing
    work: Work


@dataclass(frozen=True)
class Ftpl(Restarting):
    r"""Follow the perturbed leader: the best list for past losses minus random perturbations.

    FTRL-PBM solves for probabilities and draws a list with them; this policy draws random perturbations and shows the
    best list for the perturbed losses, one assignment problem for each decision. The resulting probabilities are not
    known. Their inverse is estimated by the number of redraws until the same item is at the same position again
    (geometric resampling).

    .. math::

        I_t &= \arg\min_I \; \sum_j \left( \hat L_{t-1} - r / \eta_t \right)_{I_j, j},
            \qquad r_{ij} = (- \log U_{ij})^{-1/2}, \qquad \eta_t = \frac{1}{\sqrt t} \\
        \hat L_{t,ij} &= \hat L_{t-1,ij}
            + (1 - \text{click}_j) \, \min(K_j, M_t) \, [\text{item } i \text{ is shown at position } j],
            \qquad M_t = \lceil \sqrt{n m t} \rceil

    The perturbations have a Frechet distribution of shape 2, which corresponds to the square root of FTRL-PBM.
    :math:`K_j` counts redraws, which all positions share. Redraws use the state at the time of the feedback, so late
    feedback is weighted slightly wrongly. The rate of :math:`1 / \sqrt t` is our choice.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: none is known for rankings; that of Tsallis-INF up to constants for one position.
    Known failure: slow, with about as many assignments per round as there are pairs; it does not know its
    propensities, so its logs cannot be used to evaluate other policies.

    Parameters
    ----------
    rate
        :math:`\eta_t = \text{rate} / \sqrt t`.
    cap
        A factor of :math:`M_t`, the largest number of redraws in a round.

    References
    ----------
    Honda, Ito, Tsuchiya: Follow-the-perturbed-leader achieves best-of-both-worlds for bandit problems, ALT 2023.

    Neu, Bartok: Importance weighting without importance weights: an efficient algorithm for combinatorial
    semi-bandits, JMLR 17, 2016.
    """

    rate: float = number(1.0, 1e-6, 1e3)
    cap: float = number(1.0, 1e-9, 1e6)

    name = "ftpl"

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            rate=float(self.rate),
            cap=float(self.cap),
            loss=np.zeros((n, m)),
            epochs=self.epochs(),
            stream=make_stream(n, m),
            work=Work(np.zeros(m, np.int64), np.zeros(m), make_placement_work(n, m)),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    perturbed_leader(state, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    absorb(state.stream, ranking)
    redraw(state, ranking, clicks)
    for j in range(ranking.size):
        state.loss[ranking[j], j] += (1.0 - clicks[j]) * state.work.draws[j]
    if new_epoch(state.epochs):
        state.loss[:] = 0.0


@inner_kernel
def perturbed_leader(state: State, source: Any, ranking: Ints) -> None:
    (n, m), work = state.shape, state.work.placement
    scale = math.sqrt(state.epochs.rounds[0] + 1.0) / state.rate
    for i in range(n):
        for j in range(m):
            work.cost[i, j] = state.loss[i, j] - scale / math.sqrt(-math.log(source.random()))
    place_cheapest(ranking, work)


@inner_kernel
def redraw(state: State, ranking: Ints, clicks: Floats) -> None:
    """Fill ``draws``, for positions without a click: the first redraw with the same item at the same position."""
    n, m = state.shape
    cap = math.ceil(state.cap * math.sqrt(n * m * (state.epochs.rounds[0] + 1.0)))
    waiting = 0
    for j in range(m):
        state.work.draws[j] = cap  # clicked positions have no loss
        waiting += clicks[j] < 1.0
    for k in range(1, cap):
        if waiting == 0:
            return
        perturbed_leader(state, state.stream, state.work.again)
        for j in range(m):
            if state.work.again[j] == ranking[j] and state.work.draws[j] == cap and clicks[j] < 1.0:
                state.work.draws[j] = k
                waiting -= 1
