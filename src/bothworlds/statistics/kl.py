r"""Confidence bounds for the mean of Bernoulli variables, in Kullback-Leibler divergence."""

from __future__ import annotations

import math

from ..kernels import inner_kernel, kernel

EDGE = 1e-15  # probabilities are kept this far from 0 and 1 where their logarithm is taken


@kernel
def kl(p: float, q: float) -> float:
    r"""Divergence of Bernoulli variables with means p and q: :math:`p \log\frac pq + (1-p) \log\frac{1-p}{1-q}`.

    >>> kl(0.5, 0.5), round(kl(1.0, 0.5), 6)    # log 2
    (0.0, 0.693147)
    """
    q = min(max(q, EDGE), 1.0 - EDGE)
    divergence = 0.0
    if p > 0.0:
        divergence += p * math.log(p / q)
    if p < 1.0:
        divergence += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return max(divergence, 0.0)


@kernel
def kl_upper(p: float, n: float, level: float) -> float:
    r"""Upper bound on the mean from n samples with average p, :math:`\max\{q \ge p : n\,kl(p, q) \le level\}`.

    Returns 1 without samples. Newton's method on the divergence, which is convex and rises from p on, converges from
    the right of the root; the starting point is Pinsker's bound.

    >>> round(kl_upper(0.0, 10.0, 1.0), 6)    # 1 - exp(-1/10)
    0.095163
    >>> kl_upper(0.5, 0.0, 1.0)
    1.0
    """
    if n <= 0.0 or p >= 1.0:
        return 1.0
    if level <= 0.0:
        return p
    target = level / n
    if p <= 0.0:
        return -math.expm1(-target)
    low, high = p, min(1.0, p + math.sqrt(0.5 * target))
    # (1-p) log((1-p)/(1-q)) + p log p <= target is another bound on the root, which stays below 1.
    high = min(high, 1.0 - (1.0 - p) * math.exp(-(target - p * math.log(p)) / (1.0 - p)))
    q = high
    for _ in range(60):
        if q >= 1.0:
            return 1.0
        excess = p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q)) - target
        if excess > 0.0:
            high = q
        else:
            low = q
        slope = (q - p) / (q * (1.0 - q))
        new = q - excess / slope if slope > 0.0 else 0.5 * (low + high)
        if not low <= new <= high:
            new = 0.5 * (low + high)
        if abs(new - q) <= 1e-14 * q:
            return new
        q = new
    return q


@kernel
def kl_lower(p: float, n: float, level: float) -> float:
    """Lower bound on the mean from n samples with average p; 0 without samples.

    >>> abs(kl_lower(0.3, 20.0, 2.0) - (1.0 - kl_upper(0.7, 20.0, 2.0))) < 1e-15
    True
    """
    return 1.0 - kl_upper(1.0 - p, n, level)


@inner_kernel
def round_level(t: float) -> float:
    r""":math:`\log t + 3 \log \log t`, the second term not below 0."""
    return math.log(t) + 3.0 * math.log(max(1.0, math.log(t)))
