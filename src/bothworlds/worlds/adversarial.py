"""Adversarial worlds: the instance of the lower bound, and three with changing moods, corrupted feedback and bots."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..checks import number, whole
from .base import Matrix, World, matrix, periodic, stochastic
from .paper import EXAMINATION, attraction
from .schedule import FOREVER, Changing

BLOCK = 100  # rounds per block; each block has its share of corrupted rounds


def hard_gap(n_items: int, n_positions: int, rounds: int) -> float:
    r"""The gap of the hard instance, :math:`\frac{1}{8} \sqrt{(n - m + 1) / T}`, by which hidden clicks are likelier.

    It is too small to be detected in T rounds, and large enough that regret is lost by not detecting it.

    >>> hard_gap(10, 5, 600)
    0.0125
    """
    n, m, T = whole(n_items, "n_items", 1), whole(n_positions, "n_positions", 1), whole(rounds, "rounds", 1)
    if n < max(m + 3, 2 * m):
        raise ValueError(
            f"n_items must be at least {max(m + 3, 2 * m)} for {m} positions, the larger of m + 3 and 2m, "
            f"or the lower bound does not hold; got {n}"
        )
    if n > T:
        raise ValueError(f"rounds must be at least n_items = {n}, or the lower bound does not hold; got {T}")
    return math.sqrt((n - m + 1) / T) / 8.0


def hard_instance(n_items: int, n_positions: int, rounds: int, rng: np.random.Generator) -> Matrix:
    r"""Build users who click with probability 1/2, and slightly more often on a hidden random list.

    The hidden list u is drawn uniformly. Item i at position j is clicked with probability

    .. math:: p_{ij} = \frac{1}{2} + \Delta \, [u_j = i], \qquad \Delta = \frac{1}{8} \sqrt{\frac{n - m + 1}{T}} .

    These probabilities are not attraction times examination. Averaged over u, the regret of every policy is at least
    ``bothworlds.theory.lower_bound``, half of the largest possible one. Raises ValueError where that does not hold.

    >>> hard_instance(4, 1, 100, np.random.default_rng(0)).click_probabilities(0).ravel()
    array([0.5  , 0.5  , 0.525, 0.5  ])
    """
    gap = hard_gap(n_items, n_positions, rounds)
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator; got {rng!r}")
    n, m = int(n_items), int(n_positions)
    probabilities = np.full((n, m), 0.5)
    probabilities[rng.permutation(n)[:m], np.arange(m)] += gap
    return matrix(probabilities)


def adversarial_hard_instance(n_items: int = 10, n_positions: int = 5, rounds: int = 100_000, seed: int = 0) -> World:
    """Users who click with probability 1/2, slightly more on a hidden list: a gap too small to be detected in time.

    This is the world of the paper's lower bound for games of ``rounds`` rounds. Averaged over the hidden lists, every
    policy has a regret of at least m sqrt((n - m + 1) T) / 16. No policy can have more than twice that, because the gap
    is so small. It shows a limit that holds for all policies.
    """
    return hard_instance(n_items, n_positions, rounds, np.random.default_rng(whole(seed, "seed", 0)))


def adversarial_growing_phases(gap: float = 0.03, phase: int = 100, growth: float = 1.6) -> World:
    """Users whose mood changes: in every other phase they like all items less, and all by the same amount.

    This is the stochastically constrained adversary: the attraction of all items rises and falls together, the gaps
    between them stay, and each phase is ``growth`` times as long as the one before. The best list never changes. It is
    hard for policies that compare averages over different times: an item shown more often in bad phases looks worse.
    """
    high = attraction(gap)
    first, factor = whole(phase, "phase", 1), number(growth, "growth", 1.0, 10.0)
    return Changing(partial(_growing, high, high - high[-1], first, factor), EXAMINATION)


def _growing(
    high: NDArray[np.float64], low: NDArray[np.float64], first: int, growth: float, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    k = np.arange(count)
    # Clipped before a length overflows a float; no game reaches such a phase.
    lengths = np.floor(first * growth ** np.minimum(k, 200.0))
    ends = np.minimum(np.cumsum(lengths), float(FOREVER)).astype(np.int64)
    return ends, np.where(k[:, None] % 2, low, high)


def adversarial_corruption(gap: float = 0.03, early: int = 20_000, share: float = 0.75) -> World:
    """Steady users whose early feedback is corrupted: in a ``share`` of the ``early`` rounds attraction is reversed.

    In every hundred rounds the corrupted ones come first. It is hard for policies that commit early and for good: with
    a share above one half, the early feedback supports the wrong order.
    """
    alpha = attraction(gap)
    bad = round(number(share, "share", 0.0, 1.0) * BLOCK)
    return Changing(partial(_corrupted, alpha, whole(early, "early", 0), bad), EXAMINATION)


def _corrupted(
    alpha: NDArray[np.float64], early: int, bad: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    starts = np.arange(0, early, BLOCK)
    ends = np.minimum(np.column_stack([starts + bad, starts + BLOCK]).ravel(), early)
    reversed_first = np.tile([alpha[::-1], alpha], (starts.size, 1))
    return np.append(ends, FOREVER), np.vstack([reversed_first, alpha])


def adversarial_fraud(gap: float = 0.03, item: int = 9, share: float = 0.3, phase: int = 10_000) -> World:
    """Steady users, but in every other phase a ``share`` of visits are bots that click one ``item`` at any position.

    Bots click on nothing else. The clicks on the chosen item hardly depend on its position, so they are not attraction
    times examination. It is hard for policies that rely on that model: many clicks at the bottom make the item look as
    if it belonged at the top, where it displaces an item that users like.
    """
    chosen = whole(item, "item", 0)
    alpha, bots = attraction(gap), number(share, "share", 0.0, 1.0)
    if chosen >= alpha.size:
        raise ValueError(f"item must be from 0 to {alpha.size - 1}; got {chosen}")
    clicks = (1.0 - bots) * np.outer(alpha, EXAMINATION)
    clicks[chosen] += bots
    return periodic([stochastic(alpha, EXAMINATION), matrix(clicks)], phase)


WORLDS: dict[str, Callable[..., World]] = {
    "adversarial/hard-instance": adversarial_hard_instance,
    "adversarial/growing-phases": adversarial_growing_phases,
    "adversarial/corruption": adversarial_corruption,
    "adversarial/fraud": adversarial_fraud,
}
