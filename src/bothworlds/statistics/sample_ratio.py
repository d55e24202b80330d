r"""Sample ratio mismatch: do the units of the arms come in the proportion that was asked for?

If shares :math:`s_k` of the units were assigned to the arms and the counts :math:`n_k` say otherwise, units of some arm
were lost, and no comparison of the arms can be trusted. The test martingale

.. math::

    E = \frac{B(a + n)}{B(a) \prod_k s_k^{n_k}}, \qquad a_k = 1000 s_k, \qquad
    B(a) = \frac{\prod_k \Gamma(a_k)}{\Gamma\left(\sum_k a_k\right)},

is the likelihood of the counts under a Dirichlet prior against that of the shares. It starts at 1, and without a
mismatch it exceeds 1,000 at any time with probability at most 1/1000 (Ville's inequality), however often one looks.

References
----------
Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

CONCENTRATION = 1000.0  # of the prior, in units
ALARM = math.log(1000.0)  # a false alarm on at most one surface in a thousand


def log_evidence(counts: Sequence[int], shares: Sequence[float], *, tolerance: float = 0.0) -> float:
    """Return the logarithm of the evidence against ``shares``, after these counts of the arms.

    With a tolerance, it is evidence against all shares such that the odds of any two arms are within this fraction of
    those of ``shares``. Logarithms of the evidence of disjoint sets of units may be added.

    >>> round(log_evidence((100, 450, 450), (0.1, 0.45, 0.45)), 2)
    -0.69
    >>> log_evidence((100, 300, 600), (0.1, 0.45, 0.45)) > ALARM
    True
    """
    if not all(0.0 < share < 1.0 for share in shares) or abs(sum(shares) - 1.0) > 1e-6:
        raise ValueError(f"shares must be between 0 and 1 and add up to 1; got {tuple(shares)!r}")
    prior = [CONCENTRATION * share for share in shares]
    likely = _nearest_shares(counts, shares, tolerance)
    posterior = [a + count for a, count in zip(prior, counts, strict=True)]
    likelihood = sum(count * math.log(share) for count, share in zip(counts, likely, strict=True))
    return _log_beta(posterior) - _log_beta(prior) - likelihood


def _nearest_shares(counts: Sequence[int], shares: Sequence[float], tolerance: float) -> Sequence[float]:
    r"""Return the tolerated shares under which the counts are most likely.

    They are :math:`s_k \min(\max(n_k / s_k, c), (1 + t) c) / N`, for the c at which they add up to 1. Their sum
    increases with c, and is linear between the points where the minimum or the maximum changes.
    """
    total = sum(counts)
    if not tolerance or not total:
        return shares
    ratios = [count / share for count, share in zip(counts, shares, strict=True)]

    def scaled(c: float) -> list[float]:
        return [share * min(max(ratio, c), c * (1.0 + tolerance)) for ratio, share in zip(ratios, shares, strict=True)]

    points = sorted(point for ratio in ratios for point in (ratio, ratio / (1.0 + tolerance)))
    sums = [sum(scaled(point)) for point in points]
    k = next((k for k, value in enumerate(sums) if value >= total), len(points) - 1)
    rise = sums[k] - sums[k - 1]
    part = (total - sums[k - 1]) / rise if k and rise > 0.0 else 1.0
    nearest = scaled(points[k - 1] + part * (points[k] - points[k - 1]) if k else points[0])
    return [share / sum(nearest) for share in nearest]


def _log_beta(a: Sequence[float]) -> float:
    return sum(map(math.lgamma, a)) - math.lgamma(sum(a))
