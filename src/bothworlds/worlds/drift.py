"""Worlds that drift: attraction that changes slowly, and attraction that switches often."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..checks import number, whole
from .base import World
from .paper import EXAMINATION, attraction
from .schedule import Changing

LOW, HIGH = 0.05, 0.95  # the random walk of attraction is reflected here


def drift_slow(gap: float = 0.03, step: float = 0.02, phase: int = 1000, seed: int = 0) -> World:
    """Users whose taste drifts: every ``phase`` rounds the attraction of each item takes a random step.

    Steps are normal with standard deviation ``step``, and the walk is reflected at 0.05 and 0.95. It is
    hard for policies that do not forget: the best item slowly becomes the second best, and in the end the worst.
    """
    alpha, size = attraction(gap), number(step, "step", 0.0, 1.0)
    plan = partial(_random_walk, alpha, size, whole(phase, "phase", 1), whole(seed, "seed", 0))
    return Changing(plan, EXAMINATION)


def _random_walk(
    alpha: NDArray[np.float64], step: float, phase: int, seed: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    moves = np.random.default_rng(seed).normal(scale=step, size=(count, alpha.size))
    moves[0] = 0.0
    return phase * np.arange(1, count + 1), _reflect(alpha + np.cumsum(moves, axis=0))


def _reflect(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fold a walk on the whole line into the interval from LOW to HIGH, as if it were reflected at both ends.

    >>> _reflect(np.array([0.5, 0.94, 0.96, 0.05, 0.04])).round(6)
    array([0.5 , 0.94, 0.94, 0.05, 0.06])
    """
    width = HIGH - LOW
    return LOW + width - np.abs((path - LOW) % (2.0 * width) - width)


def drift_switching(gap: float = 0.03, shortest: int = 50, longest: int = 500, seed: int = 0) -> World:
    """Users whose taste switches: after a random number of rounds, the items exchange their attraction at random.

    Phases last from ``shortest`` to ``longest`` rounds, each length and each order equally likely. It is
    hard for policies that follow recent clicks: a phase is over before its best list is known. In the long run all
    lists earn about the same, and a policy can at best match the best fixed list.
    """
    alpha = attraction(gap)
    least = whole(shortest, "shortest", 1)
    plan = partial(_permuted, alpha, least, whole(longest, "longest", least), whole(seed, "seed", 0))
    return Changing(plan, EXAMINATION)


def _permuted(
    alpha: NDArray[np.float64], shortest: int, longest: int, seed: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    # One stream for lengths and one for orders, so that a longer plan begins with the shorter one.
    lengths, orders = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    ends = np.cumsum(lengths.integers(shortest, longest, size=count, endpoint=True))
    return ends, alpha[orders.random((count, alpha.size)).argsort(axis=1)]


WORLDS: dict[str, Callable[..., World]] = {
    "drift/slow": drift_slow,
    "drift/switching": drift_switching,
}
