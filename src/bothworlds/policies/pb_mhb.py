"""PB-MHB: Thompson sampling of attraction and examination by Metropolis-Hastings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from .parts.counts import Counts, record
from .parts.placement import PlacementWork, make_placement_work, place_in_order
from .parts.random_stream import Stream, absorb, make_stream
from .parts.samplers import step_within_unit
from .parts.settings import Forgetting, number, whole

ROOT_TWO = math.sqrt(2.0)
MOST_EXAMINED = 0.999  # of a position after the first


class Work(NamedTuple):
    items: Floats  # (n_items,) the copy of the chain that a decision continues
    positions: Floats  # (n_positions,)
    placement: PlacementWork


class State(NamedTuple):
    shape: Shape
    sweeps: int
    step: float
    prior: float
    counts: Counts
    attraction: Floats  # (n_items,) state of the Markov chain
    examination: Floats  # (n_positions,) state of the Markov chain
    stream: Stream
    work: Work


@dataclass(frozen=True, kw_only=True)
class PbMhb(Forgetting):
    r"""Shows the best list for an attraction and an examination drawn by a random walk in the posterior.

    The examination of the first position is taken to be 1. For each other parameter in turn, a normal step truncated to
    (0, 1) is proposed, and accepted with the probability of Metropolis and Hastings. The chain continues from round to
    round, with steps that shrink as the posterior does.

    .. math::

        L = \prod_{ij} (\alpha_i \beta_j)^{a + S_{ij}} (1 - \alpha_i \beta_j)^{a + F_{ij}}, \qquad
        P(v \rightarrow v') = \min\left(1, \frac{L(v') \, Z(v)}{L(v) \, Z(v')}\right), \qquad
        \sigma_t = \frac{c}{\sqrt t}

    where :math:`S_{ij}` and :math:`F_{ij}` count clicks and missing clicks and :math:`Z(v)` is the probability that a
    step from v stays between 0 and 1. The most attractive item is shown at the most examined position, and so on. A
    decision continues a copy of the chain with the random generator of the caller; learning continues the chain itself
    with the random stream of the state.

    Requires: nothing, but it assumes that no position is examined more than the first.
    Guarantee: none is known.
    Known failure: with the published c most steps are too long and are rejected, and late in a run the chain does not
    move for many rounds; it cannot represent positions that are examined more than the first.

    Parameters
    ----------
    sweeps
        Number of times that all parameters are updated in a round; 1 in the published experiments.
    step
        c, the length of the steps; 1000 in the published experiments.
    prior
        a, the clicks and missing clicks with which every pair of item and position starts; 0 is a uniform prior of
        every parameter.

    References
    ----------
    Gauthier, Gaudel, Fromont: Position-based multiple-play bandits with Thompson sampling, IDA 2021.
    """

    sweeps: int = whole(1, 1, 10_000)
    step: float = number(1000.0, 1e-6, 1e9)
    prior: float = number(0.5, 0.0, 1e9)

    name = "pb-mhb"
    learned_leaves: ClassVar[Mapping[str, str] | None] = {"attraction": "i", "examination": "j", "stream.words": ""}

    def start(self, shape: Shape) -> State:
        n, m = shape
        return State(
            shape=shape,
            sweeps=int(self.sweeps),
            step=float(self.step),
            prior=float(self.prior),
            counts=self.counts(shape),
            attraction=np.full(n, 0.5),
            examination=np.concatenate([[1.0], np.full(m - 1, 0.5)]),
            stream=make_stream(n, m),
            work=Work(np.zeros(n), np.zeros(m), make_placement_work(n, m)),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with an examination of 1 at the first position, and the same products."""
        first = state.examination[0]
        state.attraction[:] *= first
        state.examination[:] = np.minimum(state.examination / first, MOST_EXAMINED)
        state.examination[0] = 1.0
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    for i in range(state.work.items.size):
        state.work.items[i] = state.attraction[i]
    for j in range(ranking.size):
        state.work.positions[j] = state.examination[j]
        propensity[j] = math.nan
    run_sweeps(state, rng, state.work.items, state.work.positions)
    place_in_order(state.work.items, state.work.positions, rng, ranking, state.work.placement)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    absorb(state.stream, ranking)
    run_sweeps(state, state.stream, state.attraction, state.examination)


@inner_kernel
def run_sweeps(state: State, source: Any, attraction: Floats, examination: Floats) -> None:
    """Run the sweeps of one round."""
    sigma = state.step / math.sqrt(state.counts.rounds[0] + 1.0)
    for _ in range(state.sweeps):
        for i in range(attraction.size):
            old, new = attraction[i], step_within_unit(source, attraction[i], sigma)
            if _accepts(source, item_gain(state.counts, state.prior, i, old, new, examination), old, new, sigma):
                attraction[i] = new
        for j in range(1, examination.size):
            old, new = examination[j], step_within_unit(source, examination[j], sigma)
            if _accepts(source, position_gain(state.counts, state.prior, j, old, new, attraction), old, new, sigma):
                examination[j] = new


@inner_kernel
def _accepts(source: Any, gain: float, old: float, new: float, sigma: float) -> bool:
    log_ratio = gain + math.log(mass_within(old, sigma) / mass_within(new, sigma))
    return log_ratio >= 0.0 or source.random() < math.exp(log_ratio)


@inner_kernel
def mass_within(v: float, sigma: float) -> float:
    """The probability that a normal step from v stays between 0 and 1."""
    scale = 1.0 / (sigma * ROOT_TWO)
    return 0.5 * (math.erf((1.0 - v) * scale) + math.erf(v * scale))


@inner_kernel
def item_gain(counts: Counts, prior: float, i: int, old: float, new: float, examination: Floats) -> float:
    """Return the change of the log-likelihood with a new attraction of item i."""
    clicks, gain = 0.0, 0.0
    for j in range(examination.size):
        clicks += prior + counts.clicked[i, j]
        misses = prior + max(0.0, counts.shown[i, j] - counts.clicked[i, j])
        gain += misses * math.log((1.0 - new * examination[j]) / (1.0 - old * examination[j]))
    return gain + clicks * math.log(new / old)


@inner_kernel
def position_gain(counts: Counts, prior: float, j: int, old: float, new: float, attraction: Floats) -> float:
    """Return the change of the log-likelihood with a new examination of position j."""
    clicks, gain = 0.0, 0.0
    for i in range(attraction.size):
        clicks += prior + counts.clicked[i, j]
        misses = prior + max(0.0, counts.shown[i, j] - counts.clicked[i, j])
        gain += misses * math.log((1.0 - new * attraction[i]) / (1.0 - old * attraction[i]))
    return gain + clicks * math.log(new / old)
