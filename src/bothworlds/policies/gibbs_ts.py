"""Gibbs-TS: Thompson sampling of attraction and examination together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..geometry.item_rows import Rows, add_row, fill_rows, make_rows, worth_sharing
from ..kernels import Floats, Ints, inner_kernel, kernel
from ..statistics.rank_one.likelihood import make_workspace
from ..statistics.rank_one.newton import newton
from .parts.change_detector import ChangeDetector, detect_change
from .parts.counts import Counts, record
from .parts.gibbs_chain import sweep
from .parts.placement import PlacementWork, make_placement_work, place_in_order
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import ROUNDS, Forgetting, number, truth, whole

RESUMED_SWEEPS = 20  # of a chain that starts at the maximum-likelihood fit
FIT_PRIOR = 0.1  # pseudo-clicks, in twice as many pseudo-impressions, of that fit
EDGE = 0.001  # the chain starts this far from 0 and 1


class Work(NamedTuple):
    items: Floats  # (n_items,) the copy of the chain that a decision continues, then draws of other items
    positions: Floats  # (n_positions,)
    sums: Floats  # (3, n_positions)
    placement: PlacementWork


class State(NamedTuple):
    shape: Shape
    prior: float
    sweeps: int  # in a round
    early_sweeps: int  # in each of the first rounds
    early: int  # number of first rounds
    counts: Counts
    detector: ChangeDetector
    rows: Rows  # the items that the chain contains: if there are many items, those that were shown
    attraction: Floats  # (n_items,) state of the Markov chain, by place (``Rows``)
    examination: Floats  # (n_positions,) state of the Markov chain
    stream: Stream
    work: Work


@dataclass(frozen=True, kw_only=True)
class GibbsTs(Forgetting):
    r"""Shows the best list for an attraction and an examination that are drawn from their joint posterior.

    Users click on what they examine and find attractive; a missing click does not show which of the two was missing. A
    Gibbs sampler first draws, for all missing clicks of a pair at once, how many users were attracted but did not look,
    and how many looked but were not attracted; then, given these, attraction and examination from Beta distributions. A
    sweep costs the same after a million rounds as after ten, and there are n + m parameters instead of nm.

    .. math::

        A_{ij} &\sim \text{Binomial}\left(F_{ij}, \frac{\alpha_i (1 - \beta_j)}{1 - \alpha_i \beta_j}\right), \qquad
        E_j \sim \text{Binomial}\left(\sum_i (F_{ij} - A_{ij}), \beta_j\right) \\
        \alpha_i &\sim \text{Beta}\left(a + \sum_j (S_{ij} + A_{ij}), \; a + \sum_j (F_{ij} - A_{ij})\right) \\
        \beta_j &\sim \text{Beta}\left(a + \sum_i S_{ij} + E_j, \; a + \sum_i F_{ij} - E_j\right)

    where :math:`S_{ij}` and :math:`F_{ij}` count clicks and missing clicks. The most attractive item is shown at the
    most examined position, and so on. A decision continues a copy of the chain with the random generator of the caller;
    learning continues the chain itself with the random stream of the state. Discounted numbers of missing clicks are
    rounded at random.

    Items that were never shown have the prior as their posterior, and say nothing about examination. If there are many
    items and the prior is uniform, the chain leaves them out, and a decision draws the largest of their attractions
    only: the k-th largest of N uniform numbers is :math:`U^{1/(N - k + 1)}` times the one before it.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: none is known.
    Known failure: it assumes steady users, and is very slow to notice a new order of positions.

    Parameters
    ----------
    sweeps
        Number of sweeps of the sampler in every round.
    early_sweeps, early
        Number of sweeps in a round while fewer than ``early`` rounds are remembered.
    prior
        a, of Beta(a, a) priors of attraction and of examination; 1 is uniform.

    References
    ----------
    Tanner, Wong: The calculation of posterior distributions by data augmentation, JASA 82, 1987. That it ranks well
    under the position-based model is this package's own observation.
    """

    sweeps: int = whole(1, 1, 10_000)
    early_sweeps: int = whole(3, 1, 10_000)
    early: int = whole(1000, 0, ROUNDS)
    prior: float = number(1.0, 1e-6, 1e9)
    detect: bool = truth(False)

    name = "gibbs-ts"

    def start(self, shape: Shape, sharing: bool | None = None) -> State:
        """Return the initial state; ``sharing`` leaves out items that were never shown, for a uniform prior."""
        n, m = shape
        if sharing is None:
            sharing = worth_sharing(n) and self.prior == 1.0
        return State(
            shape=shape,
            prior=float(self.prior),
            sweeps=int(self.sweeps),
            early_sweeps=int(self.early_sweeps),
            early=int(self.early),
            counts=self.counts(shape),
            detector=self.detector(shape),
            rows=make_rows(n, sharing=sharing),
            attraction=np.full(n, 0.5),
            examination=np.full(m, 0.5),
            stream=make_stream(n, m),
            work=Work(np.zeros(n), np.zeros(m), np.zeros((3, m)), make_placement_work(n, m)),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with a chain that depends on its counts alone."""
        counts = state.counts
        if counts.learned[0]:
            digest = blake2b(counts.shown.tobytes() + counts.clicked.tobytes(), digest_size=16).digest()
            state.stream.words[:] = make_stream(*state.shape, int.from_bytes(digest, "big")).words
            fit = make_workspace(*state.shape)
            newton(counts.shown, counts.clicked, FIT_PRIOR, False, False, 1e-10, fit)
            for chain, logarithm in ((state.attraction, fit.a), (state.examination, fit.b)):
                chain[:] = np.where(np.isfinite(logarithm), np.clip(np.exp(logarithm), EDGE, 1.0 - EDGE), 0.5)
            if state.rows.own[0] == 0:
                fill_rows(state.rows, np.asarray(counts.shown.any(axis=1)))
                state.attraction[:] = state.attraction[state.rows.item]
            run_chain(state, state.stream, state.attraction, state.examination, RESUMED_SWEEPS)
        return state

    def sample_rankings(self, state: State, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the best lists for ``count`` samples of one chain, with the sweeps of a round between them."""
        rankings = np.zeros((count, state.shape.n_positions), np.int64)
        continue_chain(state, rng, rankings)
        return rankings


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    copy_chain(state)
    for j in range(ranking.size):
        propensity[j] = math.nan
    run_sweeps(state, rng, state.work.items, state.work.positions)
    rank_drawn(state, rng, ranking)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    detect_change(state.detector, state.counts, ranking, clicks)
    absorb(state.stream, ranking)
    for j in range(ranking.size):
        if ranking[j] >= 0 and add_row(state.rows, ranking[j]):
            state.attraction[state.rows.place[ranking[j]]] = state.stream.random()  # the prior
    run_sweeps(state, state.stream, state.attraction, state.examination)


@inner_kernel
def copy_chain(state: State) -> None:
    """Copy the chain to the work arrays, where a decision continues it."""
    for i in range(state.rows.own[0]):
        state.work.items[i] = state.attraction[i]
    for j in range(state.work.positions.size):
        state.work.positions[j] = state.examination[j]


@kernel
def continue_chain(state: State, rng: np.random.Generator, rankings: Ints) -> None:
    """Fill in the best list after each of several rounds of sweeps; the chain of the state is not changed."""
    copy_chain(state)
    for k in range(rankings.shape[0]):
        run_sweeps(state, rng, state.work.items, state.work.positions)
        rank_drawn(state, rng, rankings[k])


@inner_kernel
def rank_drawn(state: State, rng: np.random.Generator, ranking: Ints) -> None:
    """Fill in the best list for the copy of the chain, with the items that were never shown."""
    own, n, drawn = state.rows.own[0], state.work.items.size, 1.0
    others = min(ranking.size, n - own)
    for k in range(others):
        drawn *= (1.0 - rng.random()) ** (1.0 / (n - own - k))
        state.work.items[own + k] = drawn
    place_in_order(state.work.items[: own + others], state.work.positions, rng, ranking, state.work.placement)
    for j in range(ranking.size):
        ranking[j] = state.rows.item[ranking[j]] if ranking[j] < own else other_item(state.rows, ranking[:j], rng)


@inner_kernel
def other_item(rows: Rows, above: Ints, rng: np.random.Generator) -> int:
    """Return a random item without a row that is not in the list ``above``."""
    own, n = rows.own[0], rows.item.size
    while True:
        item, unused = rows.item[own + int(rng.random() * (n - own))], True
        for j in range(above.size):
            unused = unused and above[j] != item
        if unused:
            return item


@kernel
def run_chain(state: State, source: Any, attraction: Floats, examination: Floats, sweeps: int) -> None:
    """Run a number of sweeps."""
    items = state.rows.item[: state.rows.own[0]]
    for _ in range(sweeps):
        sweep(state.counts, items, state.prior, source, attraction, examination, state.work.sums)


@inner_kernel
def run_sweeps(state: State, source: Any, attraction: Floats, examination: Floats) -> None:
    """Run the sweeps of one round."""
    early = state.counts.rounds[0] < state.early
    run_chain(state, source, attraction, examination, state.early_sweeps if early else state.sweeps)
