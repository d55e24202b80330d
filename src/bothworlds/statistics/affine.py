r"""The affine position-based model (trust bias): clicks with probability :math:`a_k \gamma_d + b_k`.

It is written as :math:`A_k \gamma_d + B_k (1 - \gamma_d)` with all numbers from 0 to 1, so that every product is a
probability: A and B are the click rates of the most and the least attractive item conceivable. The log-likelihood of
counts is concave in the attraction for fixed rates and in the rates for fixed attraction, not in both together.
Two numbers are free: :math:`\gamma \to s \gamma + t` is absorbed by A and B.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from ..kernels import Floats
from .box_newton import Arrow


class _Cells:
    """Derivatives of the log-likelihood of counts (n, m) with respect to their probabilities."""

    def __init__(self, shown: Floats, clicked: Floats) -> None:
        self.clicked, self.missed = clicked, shown - clicked

    def value(self, p: Floats) -> float:
        with np.errstate(divide="ignore"):
            return float((xlogy(self.clicked, p) + xlogy(self.missed, 1.0 - p)).sum())

    def slope(self, p: Floats) -> Floats:
        return _ratio(self.clicked, p) - _ratio(self.missed, 1.0 - p)

    def weight(self, p: Floats) -> Floats:
        """Minus the second derivatives."""
        return _ratio(self.clicked, p**2) + _ratio(self.missed, (1.0 - p) ** 2)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator > 0.0)


class AffineObjective:
    """The log-likelihood; variables are attraction (n,), and then A (m,) and B (m,)."""

    def __init__(self, shown: Floats, clicked: Floats) -> None:
        self.cells, (self.n, self.m) = _Cells(shown, clicked), shown.shape

    def probabilities(self, x: Floats) -> Floats:
        """(n, m) the probability of a click of every item at every position."""
        gamma, high, low = x[: self.n, None], x[self.n : self.n + self.m], x[self.n + self.m :]
        return gamma * high + (1.0 - gamma) * low

    def value(self, x: Floats) -> float:
        """Return the log-likelihood."""
        return self.cells.value(self.probabilities(x))

    def gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood and its derivatives."""
        p = self.probabilities(x)
        slope, gamma = self.cells.slope(p), x[: self.n]
        rise = x[self.n : self.n + self.m] - x[self.n + self.m :]
        return self.cells.value(p), np.concatenate([slope @ rise, gamma @ slope, (1.0 - gamma) @ slope])

    def curvature(self, x: Floats) -> Arrow:
        """Return minus the second derivatives."""
        p = self.probabilities(x)
        slope, weight, gamma = self.cells.slope(p), self.cells.weight(p), x[: self.n, None]
        rise = x[self.n : self.n + self.m] - x[self.n + self.m :]
        pull = weight * rise
        border = np.hstack([pull * gamma - slope, pull * (1.0 - gamma) + slope])
        parts = [(weight * a * b).sum(axis=0) for a, b in ((gamma, gamma), (gamma, 1.0 - gamma))]
        low = (weight * (1.0 - gamma) ** 2).sum(axis=0)
        corner = np.block([[np.diag(parts[0]), np.diag(parts[1])], [np.diag(parts[1]), np.diag(low)]])
        return Arrow((), (weight @ rise**2,), (border,), corner)


class NormalForm:
    r"""The model as :math:`p_{df} = \gamma_d`, :math:`p_{dk} = a_k \gamma_d + b_k`, which has no free numbers.

    f is the ``first`` position. Variables are attraction (n,), and then a and b of all other positions (m - 1,) each.
    """

    def __init__(self, shown: Floats, clicked: Floats, first: int = 0) -> None:
        self.cells, self.others = _Cells(shown, clicked), np.arange(shown.shape[1]) != first

    def curvature(self, gamma: Floats, slopes: Floats, offsets: Floats) -> Arrow:
        """Return minus the second derivatives; ``slopes`` and ``offsets`` (m,) are 1 and 0 at the first position."""
        p = np.clip(gamma[:, None] * slopes + offsets, 0.0, 1.0)
        slope, weight, g = self.cells.slope(p), self.cells.weight(p), gamma[:, None]
        w, pull = weight[:, self.others], (weight * slopes)[:, self.others]
        border = np.hstack([pull * g - slope[:, self.others], pull])
        parts = [(w * part).sum(axis=0) for part in (g**2, g, np.ones_like(g))]
        corner = np.block([[np.diag(parts[0]), np.diag(parts[1])], [np.diag(parts[1]), np.diag(parts[2])]])
        return Arrow((), ((weight * slopes**2).sum(axis=1),), (border,), corner)
