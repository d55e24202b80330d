"""The maximum of the position-based likelihood by another method: items one by one, positions by L-BFGS-B."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

LEAST = -40.0


def maximum(shown, clicked, tilt=None, start=None, restarts=3):
    """Attraction, examination and log-likelihood at the maximum over probabilities, from tables (n, m).

    For given examination each item is a concave problem in one number, solved by bisection; what remains is concave in
    the positions, with the gradient of the envelope. ``tilt`` (m,) adds tilt @ log(examination) to what is maximised;
    ``start`` (m,) is examination to start from.
    """
    shown, clicked = np.asarray(shown, float), np.asarray(clicked, float)
    liked = clicked.any(axis=1)  # the others have attraction 0 and probability 1
    missed, clicked, everybody = (shown - clicked)[liked], clicked[liked], np.zeros(len(shown))
    tilt = np.zeros(shown.shape[1]) if tilt is None else np.asarray(tilt)
    rates = (clicked.sum(0) + 0.5) / (shown.sum(0) + 1.0)

    def objective(b):
        a = best_items(clicked, missed, b)
        gain = _gain(clicked, missed, a, b)
        return -(likelihood(clicked, missed, a, b) + tilt @ b), -(gain.sum(0) + tilt)

    b = np.log(rates / rates.max())
    if start is not None:
        b = np.log(np.clip(np.nan_to_num(start), np.exp(LEAST), 1.0))
    for _ in range(restarts):  # a restart drops a poor model of the curvature
        found = minimize(
            objective,
            np.clip(b, LEAST, 0.0),
            jac=True,
            method="L-BFGS-B",
            bounds=[(LEAST, 0.0)] * b.size,
            options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20},
        )
        b = found.x
    a = best_items(clicked, missed, b)
    everybody[liked] = np.exp(a + b.max())
    return everybody, np.exp(b - b.max()), likelihood(clicked, missed, a, b)


def best_items(clicked, missed, b):
    """(n,) log-attraction of every item for given log-examination: where its derivative vanishes, or 0."""
    low, high = np.full(len(clicked), LEAST), np.zeros(len(clicked))
    for _ in range(60):
        middle = 0.5 * (low + high)
        up = _gain(clicked, missed, middle, b).sum(1) > 0.0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return high


def likelihood(clicked, missed, a, b):
    """Of the counts."""
    u = np.minimum(a[:, None] + b, -1e-15)
    return float((clicked * u + missed * np.log(-np.expm1(u))).sum())


def _gain(clicked, missed, a, b):
    u = np.minimum(a[:, None] + b, -1e-15)
    return clicked - missed * np.exp(u) / -np.expm1(u)
