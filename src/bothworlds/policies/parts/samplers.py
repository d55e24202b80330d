"""Random numbers of the usual distributions, from a Generator or from a random stream.

NumPy's own samplers cannot draw from a :class:`~bothworlds.policies.parts.random_stream.Stream`. All of these take
constant time on average, for all parameters: the posterior of millions of clicks costs no more than that of a few.
"""

from __future__ import annotations

import math
from typing import Any

from ...kernels import Ints, inner_kernel

# log k! - [(k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2] for k = 0, ..., 9
STIRLING = (
    0.08106146679532726,
    0.04134069595540929,
    0.02767792568499834,
    0.02079067210376509,
    0.01664469118982119,
    0.01387612882307075,
    0.01189670994589177,
    0.01041126526197209,
    0.009255462182712733,
    0.008330563433362871,
)


@inner_kernel
def normal(source: Any) -> float:
    """Draw from the standard normal distribution, by Marsaglia's polar method."""
    while True:
        x, y = 2.0 * source.random() - 1.0, 2.0 * source.random() - 1.0
        r = x * x + y * y
        if 0.0 < r < 1.0:
            return x * math.sqrt(-2.0 * math.log(r) / r)


@inner_kernel
def gamma(source: Any, shape: float) -> float:
    """Draw from the gamma distribution with a shape above 0 and scale 1 (Marsaglia, Tsang: ACM TOMS 26, 2000)."""
    boost = 1.0
    if shape < 1.0:
        boost = (1.0 - source.random()) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(source)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            u = 1.0 - source.random()
            if u < 1.0 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return boost * d * v


@inner_kernel
def beta(source: Any, a: float, b: float) -> float:
    """Draw from Beta(a, b); returns 0 or 1 if a and b are so small that all other values underflow."""
    x, y = gamma(source, a), gamma(source, b)
    if x + y > 0.0:
        return x / (x + y)
    return 1.0 if source.random() * (a + b) < a else 0.0


@inner_kernel
def binomial(source: Any, n: float, p: float) -> float:
    """Draw the number of successes in n trials; both are whole numbers as floats, n up to 1e15."""
    if n <= 0.0 or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return n
    rare = min(p, 1.0 - p)
    k = _by_inversion(source, n, rare) if n * rare < 10.0 else _by_rejection(source, n, rare)
    return k if p <= 0.5 else n - k


@inner_kernel
def _by_inversion(source: Any, n: float, p: float) -> float:
    """Draw by summing probabilities from 0 on; for few expected successes."""
    odds, nothing = p / (1.0 - p), 1.0 - p if n == 1.0 else math.exp(n * math.log1p(-p))
    bound = min(n, 110.0)  # because of rounding, probabilities may sum to less than u
    while True:
        k, probability, u = 0.0, nothing, source.random()
        while u >= probability and k <= bound:
            u -= probability
            k += 1.0
            probability *= odds * (n - k + 1.0) / k
        if k <= bound:
            return k


@inner_kernel
def _by_rejection(source: Any, n: float, p: float) -> float:
    """Transformed rejection with squeeze: algorithm BTRS of Hörmann, J. Stat. Comput. Simul. 46, 1993."""
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, inside = n * p + 0.5, 0.92 - 4.2 / b
    while True:
        u, v = source.random() - 0.5, 1.0 - source.random()
        us = 0.5 - abs(u)
        if us <= 0.0:
            continue
        k = math.floor((2.0 * a / us + b) * u + centre)
        if us >= 0.07 and v <= inside:
            return k
        if 0.0 <= k <= n:
            v *= (2.83 + 5.1 / b) * spread / (a / (us * us) + b)
            if math.log(v) <= _log_ratio(n, p, k):
                return k


@inner_kernel
def _log_ratio(n: float, p: float, k: float) -> float:
    """Return the log probability of k successes minus that of the most likely number."""
    mode, odds = math.floor((n + 1.0) * p), p / (1.0 - p)
    return (
        (mode + 0.5) * math.log((mode + 1.0) / (odds * (n - mode + 1.0)))
        + (n + 1.0) * math.log((n - mode + 1.0) / (n - k + 1.0))
        + (k + 0.5) * math.log(odds * (n - k + 1.0) / (k + 1.0))
        + (_stirling(mode) + _stirling(n - mode) - _stirling(k) - _stirling(n - k))
    )


@inner_kernel
def _stirling(k: float) -> float:
    """Return log k! minus Stirling's formula."""
    if k < 10.0:
        return STIRLING[int(k)]
    inverse = 1.0 / ((k + 1.0) * (k + 1.0))
    return (1.0 / 12.0 - (1.0 / 360.0 - inverse / 1260.0) * inverse) / (k + 1.0)


@inner_kernel
def step_within_unit(source: Any, start: float, sigma: float) -> float:
    """Draw from the normal distribution around ``start``, from (0, 1), truncated to (0, 1).

    Rejection sampling, from the uniform distribution for large sigma and from the normal one for small sigma: more than
    two of five proposals are accepted. With sigma = 1000, normal proposals alone would be rejected thousands of times.
    """
    while True:
        if sigma >= 0.5:
            x = source.random()
            away = (x - start) / sigma
            if x > 0.0 and source.random() < math.exp(-0.5 * away * away):
                return x
        else:
            x = start + sigma * normal(source)
            if 0.0 < x < 1.0:
                return x


@inner_kernel
def round_at_random(source: Any, x: float) -> float:
    """Round x up or down at random, such that the mean is x."""
    low = math.floor(x)
    return low + 1.0 if x > low and source.random() < x - low else low


@inner_kernel
def shuffle(source: Any, items: Ints) -> None:
    """Fill in a random permutation."""
    for k in range(items.size):
        other = int(source.random() * (k + 1))
        items[k] = items[other]
        items[other] = k


@inner_kernel
def draw_items(items: Ints, source: Any, ranking: Ints) -> None:
    """Fill in a uniformly random list of ``items``, which are 0, 1, 2, ..., and are so again afterwards."""
    n = items.size
    for j in range(ranking.size):
        k = j + int(source.random() * (n - j))
        items[j], items[k] = items[k], items[j]
        ranking[j] = items[j]
    for j in range(ranking.size):
        items[ranking[j]] = ranking[j]
        items[j] = j
