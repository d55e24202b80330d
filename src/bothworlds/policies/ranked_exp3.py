"""RankedExp3: one Exp3 learner for every position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns, notes
from ..kernels import Floats, Ints, inner_kernel, kernel
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream
from .parts.settings import Planning, choice

FIRST, ALL = "first-click", "all-clicks"


class State(NamedTuple):
    shape: Shape
    every_click: bool  # whether every clicked position gets a reward, or the topmost one only
    epochs: Epochs
    gamma: Floats  # (1,) share of uniform exploration
    weights: Floats  # (n_positions, n_items) logarithms
    chances: Floats  # (n_positions, n_items) probabilities of the intended items
    stream: Stream
    work: Ints  # (n_items,) items used so far


@dataclass(frozen=True, kw_only=True)
class RankedExp3(Planning):
    r"""Chooses the item of each position with an Exp3 learner, from the top down.

    Each learner draws the item it intends to show; where that is already shown higher up, a uniformly random unused
    item replaces it and earns nothing. A learner is rewarded if its intended item was shown and clicked, so lower
    positions learn what attracts users who did not click on higher ones.

    .. math::

        p_j(i) = (1 - \gamma) \frac{e^{W_j(i)}}{\sum_k e^{W_j(k)}} + \frac{\gamma}{n}, \qquad
        W_j(h_j) \leftarrow W_j(h_j) + \frac{\gamma}{n} \, \frac{r_j}{p_j(h_j)}, \qquad
        \gamma = \min\left(1, \sqrt{\frac{n \log n}{(e - 1) T}}\right)

    A decision does not contain which of its items were intended. Given the list, that is independent of the clicks: the
    item i at position j was intended with probability :math:`p_j(i) / (p_j(i) + q_j / u_j)`, where :math:`q_j` is
    the probability that the learner drew an item from above and :math:`u_j` the number of unused items. Learning draws
    the intention from that distribution, so list, intention and clicks have the joint distribution of the publication.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: regret :math:`O(m \sqrt{n T \log n})` against :math:`1 - 1/e` of the best coverage, with any users who
    click once.
    Known failure: it maximises coverage instead of clicks, and stays below the best list when users click
    independently.

    Parameters
    ----------
    credit
        "first-click": of several clicks only the topmost counts, as published; "all-clicks": every click counts.

    Examples
    --------
    An item that is always clicked displaces the others:

    >>> import bothworlds
    >>> world = bothworlds.worlds.stochastic([1.0, 0.0, 0.0], [1.0])
    >>> result = bothworlds.play("ranked-exp3", world, rounds=10_000, replications=2)
    >>> bool(result.final()[0] > 0.9)
    True

    References
    ----------
    Radlinski, Kleinberg, Joachims: Learning diverse rankings with multi-armed bandits, ICML 2008.
    Auer, Cesa-Bianchi, Freund, Schapire: The nonstochastic multiarmed bandit problem, SIAM J. Comput. 32, 2002.
    """

    credit: str = choice(FIRST, ALL)

    name = "ranked-exp3"
    needs = ("horizon",)

    def note_size(self, shape: Shape) -> int:
        """Return the number of positions: it remembers the probability of the intended item at each."""
        return shape.n_positions

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
            work=np.zeros(n, np.int64),
        )


@kernel
def exploration(n: float, horizon: float) -> float:
    """Return the share of uniform draws of Exp3 for a horizon."""
    return min(1.0, math.sqrt(n * math.log(n) / ((math.e - 1.0) * horizon)))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    used = state.work
    for i in range(used.size):
        used[i] = 0
    for j in range(ranking.size):
        item = _draw(state.chances, j, rng)
        if used[item] == 1:
            item = _unused(used, used.size - j, rng)
        used[item] = 1
        ranking[j] = item
        # At lower positions it would be a sum over all lists.
        propensity[j] = state.chances[j, item] if j == 0 else math.nan


@inner_kernel
def _draw(chances: Floats, j: int, rng: np.random.Generator) -> int:
    n = chances.shape[1]
    u = rng.random()
    for i in range(n):
        u -= chances[j, i]
        if u < 0.0:
            return i
    return int(rng.random() * n)  # probabilities may sum to less than u because of rounding


@inner_kernel
def _unused(used: Ints, left: int, rng: np.random.Generator) -> int:
    k = int(rng.random() * left)
    for i in range(used.size):
        if used[i] == 0:
            if k == 0:
                return i
            k -= 1
    return -1


@notes(State)
def note(state: State, ranking: Ints, note: Floats) -> None:
    for j in range(ranking.size):
        note[j] = state.chances[j, ranking[j]]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats) -> None:
    n = state.shape.n_items
    absorb(state.stream, ranking)
    for j in range(ranking.size):
        if clicks[j] > 0.0:
            if state.stream.random() < intended_probability(state.chances, ranking, j):
                p = note[j] if note.size > 0 else state.chances[j, ranking[j]]
                state.weights[j, ranking[j]] += clicks[j] * min(1.0, state.gamma[0] / (n * p))
                _update_chances(state.weights, state.chances, j, state.gamma[0])
            if not state.every_click:
                break
    if new_epoch(state.epochs):
        state.gamma[0] = exploration(float(n), state.epochs.horizon[0])
        for j in range(ranking.size):
            for i in range(n):
                state.weights[j, i] = 0.0
                state.chances[j, i] = 1.0 / n


@inner_kernel
def intended_probability(chances: Floats, ranking: Ints, j: int) -> float:
    """Return the probability, given the list, that the item at position j was intended."""
    repeated = 0.0
    for k in range(j):
        repeated += chances[j, ranking[k]]
    intended = chances[j, ranking[j]]
    return intended / (intended + repeated / (chances.shape[1] - j))


@inner_kernel
def _update_chances(weights: Floats, chances: Floats, j: int, gamma: float) -> None:
    """Compute the probabilities of one learner from its weights."""
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
