"""The regularisers as plain NumPy formulas, in the precision of the arrays."""

from __future__ import annotations

import numpy as np

NAMES = ("tsallis", "shannon", "log-barrier", "hybrid", "hybrid-barrier")

# A lower bound on the second derivative over (0, 1]: it turns a gap into a distance.
CURVATURE = {"tsallis": 0.25, "shannon": 1.0, "log-barrier": 1.0, "hybrid": 1.25, "hybrid-barrier": 2.0}


def phi(name, x):
    """The regulariser, entry by entry; 0 log 0 = 0."""
    if name == "tsallis":
        return -np.sqrt(x)
    if name == "shannon":
        return _x_log_x(x) - x
    if name == "log-barrier":
        return -np.log(x)
    return (-np.sqrt(x) if name == "hybrid" else -np.log(x)) + _x_log_x(1 - x)


def slope(name, x):
    """Its derivative."""
    if name == "tsallis":
        return -0.5 / np.sqrt(x)
    if name == "shannon":
        return np.log(x)
    if name == "log-barrier":
        return -1 / x
    return (-0.5 / np.sqrt(x) if name == "hybrid" else -1 / x) - 1 - np.log1p(-x)


def curvature(name, x):
    """Its second derivative."""
    if name == "tsallis":
        return 0.25 / (x * np.sqrt(x))
    if name == "shannon":
        return 1 / x
    if name == "log-barrier":
        return 1 / (x * x)
    return (0.25 / (x * np.sqrt(x)) if name == "hybrid" else 1 / (x * x)) + 1 / (1 - x)


def marginal(name, y):
    """The x at which the derivative is y. Outside the domain (y >= 0 for two of the four) it is infinite."""
    y = np.asarray(y)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        if name == "tsallis":
            return np.where(y < 0, 0.25 / (y * y), np.inf)
        if name == "shannon":
            return np.exp(y)
        if name == "log-barrier":
            return np.where(y < 0, -1 / y, np.inf)
    return _expit(_hybrid_logit(name, y))


def conjugate(name, y):
    """min over x of phi(x) - y x: what a dual function is made of."""
    y = np.asarray(y)
    if name == "tsallis":
        return np.where(y < 0, 0.25 / np.where(y < 0, y, -1), -np.inf)
    if name == "shannon":
        return -np.exp(y)
    if name == "log-barrier":
        return np.where(y < 0, 1 + np.log(np.where(y < 0, -y, 1)), -np.inf)
    u = _hybrid_logit(name, y)
    x, rest = _expit(u), _expit(-u)
    return (-np.sqrt(x) if name == "hybrid" else -np.log(x)) + _x_log_x(rest) - y * x


def _x_log_x(x):
    positive = np.where(x > 0, x, 1)
    return np.where(x > 0, x * np.log(positive), 0)


def _expit(u):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-u))


def _hybrid_logit(name, y):
    """The log-odds of x at which a hybrid's derivative is y: by bisection, since no formula is known."""
    low = -2 * np.log(2 * np.abs(y) + 6)
    high = np.maximum(y, 0) + 3
    for _ in range(80):
        u = (low + high) / 2
        # log(1 - x) = -log(1 + e^u), and 1/x = 1 + e^-u
        steep = -0.5 * np.sqrt(1 + np.exp(-u)) if name == "hybrid" else -1 - np.exp(-u)
        above = steep - 1 + np.logaddexp(0, u) > y
        low, high = np.where(above, low, u), np.where(above, u, high)
    return (low + high) / 2
