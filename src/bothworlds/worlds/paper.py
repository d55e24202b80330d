"""The worlds of the paper's experiments: ten items, five positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..checks import is_number
from .base import World, periodic, stochastic

EXAMINATION = 1.0 / np.arange(1.0, 6.0)

# The paper's EM fit to the Yandex log, as printed (only the products matter).
YANDEX_ATTRACTION = np.array([0.894, 0.231, 0.139, 0.0745, 0.0585, 0.0424, 0.0237, 0.0234, 0.0231, 0.0178])
YANDEX_EXAMINATION = np.array([0.891, 0.227, 0.0778, 0.0412, 0.0378])


def attraction(gap: float) -> NDArray[np.float64]:
    """Return 0.95, 0.95 - gap, 0.95 - 2 gap, ... for ten items."""
    if not is_number(gap) or not 0.0 <= gap <= 0.95 / 9:
        raise ValueError(f"gap must be from 0 to {0.95 / 9:.4f}, or the last of ten items is below 0; got {gap!r}")
    return np.maximum(0.0, 0.95 - gap * np.arange(10))


def exchange_items(alpha: NDArray[np.float64], beta: NDArray[np.float64], phase: int) -> World:
    """Build a world in which, in every second phase, the two halves of the items exchange their attraction."""
    return periodic([stochastic(alpha, beta), stochastic(np.roll(alpha, alpha.size // 2), beta)], phase)


def reverse_both(alpha: NDArray[np.float64], beta: NDArray[np.float64], phase: int) -> World:
    """Build a world in which, in every second phase, attraction and examination are both reversed."""
    return periodic([stochastic(alpha, beta), stochastic(alpha[::-1], beta[::-1])], phase)


def paper_stochastic(gap: float = 0.03, phase: int = 100_000) -> World:
    """Steady users: attraction falls by ``gap`` from item to item, examination is 1/position; nothing changes."""
    return stochastic(attraction(gap), EXAMINATION)


def paper_periodic_items(gap: float = 0.03, phase: int = 100_000) -> World:
    """Seasonal users: every ``phase`` rounds the first and the last five items exchange their attraction."""
    return exchange_items(attraction(gap), EXAMINATION, phase)


def paper_periodic_both(gap: float = 0.03, phase: int = 100_000) -> World:
    """A page read from the other end: every ``phase`` rounds attraction and examination are both reversed."""
    return reverse_both(attraction(gap), EXAMINATION, phase)


def yandex_stochastic(phase: int = 100_000) -> World:
    """Steady users with the attraction and examination that the paper fitted to a search log."""
    return stochastic(YANDEX_ATTRACTION, YANDEX_EXAMINATION)


def yandex_periodic_items(phase: int = 100_000) -> World:
    """The fitted values; every ``phase`` rounds the first and the last five items exchange their attraction."""
    return exchange_items(YANDEX_ATTRACTION, YANDEX_EXAMINATION, phase)


def yandex_periodic_both(phase: int = 100_000) -> World:
    """The fitted values; every ``phase`` rounds attraction and examination are both reversed."""
    return reverse_both(YANDEX_ATTRACTION, YANDEX_EXAMINATION, phase)


WORLDS: dict[str, Callable[..., World]] = {
    "paper/stochastic": paper_stochastic,
    "paper/periodic-items": paper_periodic_items,
    "paper/periodic-both": paper_periodic_both,
    "yandex/stochastic": yandex_stochastic,
    "yandex/periodic-items": yandex_periodic_items,
    "yandex/periodic-both": yandex_periodic_both,
}
