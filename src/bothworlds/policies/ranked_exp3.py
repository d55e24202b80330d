"""RankedExp3: one Exp3 learner for every position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel, kernel
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream, uniform
from .parts.settings import Planning, choice

__all__ = ["RankedExp3"]

FIRST, ALL = "first-click", "all-clicks"


class State(NamedTuple):
    shape: Shape
    every_click: bool  # whether every position is paid for its own click, or the topmost one only
    epochs: Epochs
    gamma: Floats  # (1,) share of uniform exploration
    weights: Floats  # (n_positions, n_items) logarithms
    chances: Floats  # (n_positions, n_items) of what is intended
    stream: Stream
    used: Ints  # (n_items,) scratch


@dataclass(frozen=True, kw_only=True)
class RankedExp3(Planning):
    r"""Lets one Exp3 learner choose the item for each position, from the top down.

    Each learner draws the item it intends to show; where that is already shown higher up, a uniformly random unused
    item takes its place and earns nothing. A learner is rewarded if its intended item was shown and got the click, so
    that lower positions learn to please the users whom higher ones did not.

    .. math::

        p_j(i) = (1 - \gamma) \frac{e^{W_j(i)}}{\sum_k e^{W_j(k)}} + \frac{\gamma}{n}, \qquad
        W_j(h_j) \leftarrow W_j(h_j) + \frac{\gamma}{n} \, \frac{r_j}{p_j(h_j)}, \qquad
        \gamma = \min\left(1, \sqrt{\frac{n \log n}{(e - 1) T}}\right)

    A decision does not say which of its items were intended. Given the list, that is independent of the clicks: the
    item i at position j was intended with probability :math:`p_j(i) / (p_j(i) + q_j / u_j)`, where :math:`q_j` is
    the probability that the learner drew an item from above and :math:`u_j` the number of unused items. Learning draws
    the intention from that law, so list, intention and clicks are jointly distributed as published.

    Needs to be told: the horizon; without it, the doubling trick.
    Guarantee: regret :math:`O(m \sqrt{n T \log n})` against :math:`1 - 1/e` of the best coverage, with any users who
    click once.
    Known failure: it seeks coverage and not clicks, and ends below the best list when users click independently.

    Parameters
    ----------
    credit
        "first-click": of several clicks only the topmost counts, as published; "all-clicks": each position is paid
        for its own.
    horizon
        How many rounds there will be; None for the doubling trick.
    restart
        Start anew every so many rounds; None for never.

    Examples
    --------
    Items that are always clicked drive the others out:

    >>> import bothworlds
    >>> world = bothworlds.worlds.stochastic([1.0, 0.0, 0.0], [1.0])
    >>> result = bothworlds.play("ranked-exp3", world, rounds=10_000, seeds=2)
    >>> bool(result.final()[0] > 0.9)
    True

    References
    ----------
    Radlinski, Kleinberg, Joachims: Learning diverse rankings with multi-armed bandits, ICML 2008.
    Auer, Cesa-Bianchi, Freund, Schapire: The nonstochastic multiarmed bandit problem, SIAM J. Comput. 32, 2002.
    """

    credit: str = FIRST

    name = "ranked-exp3"
    needs = ("horizon",)

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self, "credit", (FIRST, ALL))

    def start(self, shape: Shape) -> State:
        n, m = shape
        epochs = self.epochs()
        return State(
            shape=shape,
            every_click=self.credit == ALL,
            epochs=epochs,
            gamma=np.array([exploration(float(n), epochs.horizon[0])]),
            weights=np.zeros((m, n)),
            chances=np.full((m, n), 1.0 / n),
            stream=make_stream(n, m),
            used=np.zeros(n, np.int64),
        )


@kernel
def exploration(n: float, horizon: float) -> float:
    """The share of uniform draws that Exp3 plans for a horizon."""
    return min(1.0, math.sqrt(n * math.log(n) / ((math.e - 1.0) * horizon)))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    used = state.used
    for i in range(used.size):
        used[i] = 0
    for j in range(ranking.size):
        item = _draw(state.chances, j, rng)
        if used[item] == 1:
            item = _unused(used, used.size - j, rng)
        used[item] = 1
        ranking[j] = item
        # Further down it would take a sum over all lists.
        propensity[j] = state.chances[j, item] if j == 0 else math.nan


@inner_kernel
def _draw(chances: Floats, j: int, rng: np.random.Generator) -> int:
    n = chances.shape[1]
    u = rng.random()
    for i in range(n):
        u -= chances[j, i]
        if u < 0.0:
            return i
    return int(rng.random() * n)  # what rounding leaves


@inner_kernel
def _unused(used: Ints, left: int, rng: np.random.Generator) -> int:
    k = int(rng.random() * left)
    for i in range(used.size):
        if used[i] == 0:
            if k == 0:
                return i
            k -= 1
    return -1


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    n = state.shape.n_items
    absorb(state.stream, ranking)
    for j in range(ranking.size):
        if clicks[j] > 0.5:
            if uniform(state.stream) < intention(state.chances, ranking, j):
                # The learner of the first position is told how likely its item was, however late the click.
                p = propensity[0] if j == 0 and propensity[0] > 0.0 else state.chances[j, ranking[j]]
                state.weights[j, ranking[j]] += min(1.0, state.gamma[0] / (n * p))
                _spread(state.weights, state.chances, j, state.gamma[0])
            if not state.every_click:
                break
    if new_epoch(state.epochs):
        state.gamma[0] = exploration(float(n), state.epochs.horizon[0])
        for j in range(ranking.size):
            for i in range(n):
                state.weights[j, i] = 0.0
                state.chances[j, i] = 1.0 / n


@inner_kernel
def intention(chances: Floats, ranking: Ints, j: int) -> float:
    """The probability, given the list, that the item at position j was intended."""
    repeated = 0.0
    for k in range(j):
        repeated += chances[j, ranking[k]]
    meant = chances[j, ranking[j]]
    return meant / (meant + repeated / (chances.shape[1] - j))


@inner_kernel
def _spread(weights: Floats, chances: Floats, j: int, gamma: float) -> None:
    """The chances of one learner from its weights."""
    n = weights.shape[1]
    largest = weights[j, 0]
    for i in range(n):
        largest = max(largest, weights[j, i])
    total = 0.0
    for i in range(n):
        chances[j, i] = math.exp(weights[j, i] - largest)
        total += chances[j, i]
    for i in range(n):
        chances[j, i] = (1.0 - gamma) * chances[j, i] / total + gamma / n
