r"""Confidence sequences: intervals for a comparison of two arms that hold at all times at once.

A confidence interval holds at one time that is fixed beforehand. Whoever looks again and again, and stops at the first
interval without zero, is wrong far more often than it says. A confidence sequence covers the truth at all times
simultaneously with probability :math:`1 - \alpha`, so that one may look as often as one likes.

The sequence is asymptotic: it needs enough data for the central limit theorem at the time of the first look. With an
estimate :math:`d` of variance :math:`v` from :math:`n` units,

.. math::

    d \pm \sqrt v \sqrt{\frac{2 (n \rho^2 + 1)}{n \rho^2} \log \frac{\sqrt{n \rho^2 + 1}}{\alpha}}, \qquad
    \rho^2 = \frac{-2 \log \alpha + \log(-2 \log \alpha + 1)}{n_\star},

where :math:`n_\star` is the number of units at which the sequence is narrowest compared with a fixed interval.

References
----------
Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, *Time-uniform central limit theory and asymptotic confidence
sequences*, Annals of Statistics 52 (2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

NARROWEST_AT = 50_000.0  # units


class Estimate(NamedTuple):
    """An estimate, the variance of its error, and the number of units that it comes from."""

    value: float
    variance: float
    units: float


Stratum = tuple[Estimate, Estimate]  # the means of both arms over a time in which their shares did not change


def standard_errors(units: float, alpha: float, narrowest_at: float = NARROWEST_AT) -> float:
    """Return the half width of the sequence in standard errors.

    >>> [round(standard_errors(units, 0.05), 2) for units in (5000.0, 50_000.0, 500_000.0)]
    [3.86, 3.04, 3.24]
    """
    spread = -2.0 * math.log(alpha)
    scale = units * (spread + math.log(spread + 1.0)) / narrowest_at  # n rho^2
    return math.sqrt(2.0 * (scale + 1.0) / scale * (0.5 * math.log1p(scale) - math.log(alpha)))


def half_width(estimate: Estimate, alpha: float, narrowest_at: float = NARROWEST_AT) -> float:
    """Return the half width of the sequence at an estimate; infinite without data."""
    if estimate.units <= 0.0 or not math.isfinite(estimate.variance):
        return math.inf
    return math.sqrt(estimate.variance) * standard_errors(estimate.units, alpha, narrowest_at)


def interval(estimate: Estimate, alpha: float, narrowest_at: float = NARROWEST_AT) -> tuple[float, float]:
    """Return the ends of the sequence at an estimate.

    >>> interval(difference((Estimate(0.5, 1e-4, 2500), Estimate(0.4, 1e-4, 2500))), 0.05)
    (0.04548..., 0.15451...)
    """
    half = half_width(estimate, alpha, narrowest_at)
    return estimate.value - half, estimate.value + half


def difference(*strata: Stratum) -> Estimate:
    """Return by how much the mean of the first arm is greater than that of the second.

    A stratum is a time in which the shares of the arms did not change. Pooling the units of times with different shares
    would compare the arms at different times (Simpson's paradox), so strata are weighted by the units of both arms.
    """
    first, second = _means(strata)
    return _combined(first - second, strata, 1.0, 1.0)


def log_ratio(*strata: Stratum) -> Estimate:
    """Return the logarithm of the ratio of both means, which must be positive, by the delta method.

    >>> one = log_ratio((Estimate(0.6, 1e-4, 2500), Estimate(0.5, 1e-4, 2500)))
    >>> round(math.exp(one.value), 3), one.units
    (1.2, 5000.0)
    """
    first, second = _means(strata)
    return _combined(math.log(first / second), strata, 1.0 / first, 1.0 / second)


def _means(strata: Sequence[Stratum]) -> tuple[float, float]:
    """Return the mean of each arm, with strata weighted by the units of both arms."""
    units = [a.units + b.units for a, b in strata]
    total = sum(units)
    first = sum(n * a.value for n, (a, _) in zip(units, strata)) / total
    return first, sum(n * b.value for n, (_, b) in zip(units, strata)) / total


def _combined(value: float, strata: Sequence[Stratum], slope_a: float, slope_b: float) -> Estimate:
    r"""Return the estimate with its variance, for the derivatives of the value by the means.

    The sum over strata of units times estimate is a martingale with variance :math:`V = \sum_k n_k^2 v_k`. The boundary
    holds for a martingale as a function of its variance. In one stratum that is proportional to the number of units;
    with several, units of the first stratum with the same variance are counted.
    """
    units = [a.units + b.units for a, b in strata]
    variances = [slope_a**2 * a.variance + slope_b**2 * b.variance for a, b in strata]
    total = sum(n * n * v for n, v in zip(units, variances))
    if not math.isfinite(total) or variances[0] == 0.0:
        return Estimate(value, math.inf, sum(units))
    return Estimate(value, total / sum(units) ** 2, total / (units[0] * variances[0]))
