"""The comparators of regret: the rewards of the best rankings in hindsight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..geometry import best_ranking
from ..worlds import World

__all__ = ["best_in_hindsight"]

CACHED_ARRAYS = 1000  # arrays of probabilities whose best value is cached


def best_in_hindsight(world: World, marks: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cumulative expected reward of the best fixed ranking, and of the best ranking of each round.

    The fixed ranking is the best one for the rounds up to that checkpoint: R(t) is the regret of a game of t rounds.

    >>> from bothworlds.worlds import periodic, stochastic
    >>> world = periodic([stochastic([0.9, 0.1], [1.0]), stochastic([0.1, 0.9], [1.0])], phase=10)
    >>> fixed, dynamic = best_in_hindsight(world, np.array([10, 20]))
    >>> fixed.round(6).tolist(), dynamic.round(6).tolist()
    ([9.0, 10.0], [9.0, 18.0])
    """
    fixed, dynamic = np.empty(len(marks)), np.empty(len(marks))
    summed = np.zeros((world.n_items, world.n_positions))
    best_so_far, done = 0.0, 0
    # Periodic worlds return the same few read-only arrays again and again; a writeable one may have changed since.
    cached: dict[int, tuple[NDArray[np.float64], float]] = {}
    for k, mark in enumerate(marks.tolist()):
        for end, probabilities in world.pieces(done, mark):
            value = cached[id(probabilities)][1] if id(probabilities) in cached else _value(probabilities)
            if not probabilities.flags.writeable and len(cached) < CACHED_ARRAYS:
                cached[id(probabilities)] = (probabilities, value)
            best_so_far += (end - done) * value
            summed += (end - done) * probabilities
            done = end
        fixed[k], dynamic[k] = _value(summed), best_so_far
    return fixed, dynamic


def _value(scores: NDArray[np.float64]) -> float:
    return float(scores[best_ranking(scores), np.arange(scores.shape[1])].sum())
