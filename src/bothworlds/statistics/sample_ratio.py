r"""Sample ratio mismatch: do the units of two arms come in the proportion that was asked for?

If a share :math:`h` of the units was assigned to the first arm and the counts say otherwise, units of one arm were
lost, and no comparison of the arms can be trusted. The test martingale

.. math::

    E = \frac{B(a + n_0, b + n_1)}{B(a, b)} \Big/ h^{n_0} (1 - h)^{n_1}, \qquad a = 1000 h,\ b = 1000 (1 - h),

is the likelihood of the counts under a Beta prior against that of the share. It starts at 1, and without a mismatch it
exceeds 1,000 at any time with probability at most 1/1000 (Ville's inequality), however often one looks.

References
----------
Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022.
"""

from __future__ import annotations

import math

__all__ = ["ALARM", "CONCENTRATION", "log_evidence"]

CONCENTRATION = 1000.0  # of the Beta prior, in units
ALARM = math.log(1000.0)  # a false alarm on at most one surface in a thousand


def log_evidence(first: int, second: int, share: float, *, tolerance: float = 0.0) -> float:
    """Return the logarithm of the evidence against ``share``, after these counts of both arms.

    With a tolerance, it is evidence against every share whose odds are within this fraction of those of ``share``.
    Logarithms of the evidence of disjoint sets of units may be added.

    >>> round(log_evidence(100, 900, 0.1), 2), log_evidence(200, 900, 0.1) > ALARM
    (-0.35, True)
    >>> log_evidence(200, 900, 0.1, tolerance=1.5) < 0.0
    True
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be between 0 and 1; got {share!r}")
    a, b = CONCENTRATION * share, CONCENTRATION * (1.0 - share)
    likely = _nearest_share(first, second, share, tolerance)
    return _log_beta(a + first, b + second) - _log_beta(a, b) - first * math.log(likely) - second * math.log1p(-likely)


def _nearest_share(first: int, second: int, share: float, tolerance: float) -> float:
    """Return the tolerated share under which the counts are most likely."""
    if not tolerance or not first + second:
        return share
    odds = share / (1.0 - share)
    low, high = (1.0 / (1.0 + 1.0 / (odds * factor)) for factor in (1.0 / (1.0 + tolerance), 1.0 + tolerance))
    return min(max(first / (first + second), low), high)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
