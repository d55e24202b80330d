"""Worlds of click models other than the position-based one, with the paper's attraction: ten items, five positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..checks import number, whole
from .base import World, matrix
from .click_world import browsing, cascade, dependent_clicks, dynamic_bayesian
from .paper import EXAMINATION, YANDEX_ATTRACTION, attraction

POSITIONS = EXAMINATION.size


def cascade_paper(gap: float = 0.03) -> World:
    """Users who click the first item that attracts them and leave; nearly every list gets one click, as all attract."""
    return cascade(attraction(gap), POSITIONS)


def cascade_yandex(positions: int = 5) -> World:
    """Users who click the first item that attracts them and leave, with the attraction of the search log."""
    return cascade(YANDEX_ATTRACTION, whole(positions, "positions", 1))


def _dependent_clicks(alpha: NDArray[np.float64], continuation: float) -> World:
    base = number(continuation, "continuation", 0.0, 1.0)
    return dependent_clicks(alpha, base ** np.arange(1.0, POSITIONS + 1.0))


def dcm_paper(gap: float = 0.03, continuation: float = 0.8) -> World:
    """Users who read on after a skip, and after a click at position k with probability ``continuation`` to the k."""
    return _dependent_clicks(attraction(gap), continuation)


def dcm_yandex(continuation: float = 0.8) -> World:
    """The users of ``dcm/paper`` with the attraction of the search log."""
    return _dependent_clicks(YANDEX_ATTRACTION, continuation)


def _dynamic_bayesian(alpha: NDArray[np.float64], satisfaction: float, gamma: float) -> World:
    satisfied = np.full(alpha.size, number(satisfaction, "satisfaction", 0.0, 1.0))
    return dynamic_bayesian(alpha, satisfied, gamma, POSITIONS)


def dbn_paper(gap: float = 0.03, satisfaction: float = 0.5, gamma: float = 0.8) -> World:
    """Users who leave after a click with probability ``satisfaction``, and otherwise read on with ``gamma``."""
    return _dynamic_bayesian(attraction(gap), satisfaction, gamma)


def dbn_yandex(satisfaction: float = 0.5, gamma: float = 0.8) -> World:
    """The users of ``dbn/paper`` with the attraction of the search log."""
    return _dynamic_bayesian(YANDEX_ATTRACTION, satisfaction, gamma)


def dbn_satisfying(gap: float = 0.1, gamma: float = 0.9) -> World:
    """Users whom an item satisfies as often as it attracts: the most attractive items end the session."""
    alpha = attraction(gap)
    return dynamic_bayesian(alpha, alpha, gamma, POSITIONS)


def _browsing(alpha: NDArray[np.float64], after: float) -> World:
    base = number(after, "after", 0.0, 1.0)
    pairs = [(k, last) for k in range(1, POSITIONS + 1) for last in range(k)]
    return browsing(alpha, [base / (k - last) if last else 1.0 / k for k, last in pairs])


def ubm_paper(gap: float = 0.03, after: float = 0.7) -> World:
    """Users who examine position k with 1/k before a click, and with ``after``/d at distance d below the last click."""
    return _browsing(attraction(gap), after)


def ubm_yandex(after: float = 0.7) -> World:
    """The users of ``ubm/paper`` with the attraction of the search log."""
    return _browsing(YANDEX_ATTRACTION, after)


def _trust(alpha: NDArray[np.float64], trust: float) -> World:
    # Examined with 1/k, an item is clicked if it attracts, and otherwise with the probability trust / k.
    without = number(trust, "trust", 0.0, 1.0) * EXAMINATION
    return matrix(EXAMINATION * (alpha[:, None] + without * (1.0 - alpha[:, None])))


def trust_paper(gap: float = 0.03, trust: float = 0.5) -> World:
    """Users who also click what does not attract, with probability ``trust``/k at position k; independent clicks."""
    return _trust(attraction(gap), trust)


def trust_yandex(trust: float = 0.5) -> World:
    """The users of ``trust/paper`` with the attraction of the search log."""
    return _trust(YANDEX_ATTRACTION, trust)


WORLDS: dict[str, Callable[..., World]] = {
    "cascade/paper": cascade_paper,
    "cascade/yandex": cascade_yandex,
    "dcm/paper": dcm_paper,
    "dcm/yandex": dcm_yandex,
    "dbn/paper": dbn_paper,
    "dbn/yandex": dbn_yandex,
    "dbn/satisfying": dbn_satisfying,
    "ubm/paper": ubm_paper,
    "ubm/yandex": ubm_yandex,
    "trust/paper": trust_paper,
    "trust/yandex": trust_yandex,
}
