"""The rank-one fit by expectation-maximisation: robust, but slow near the maximum."""

from __future__ import annotations

from ...kernels import Floats, inner_kernel, kernel
from .newton import Effort

CAP = 1.0 - 1e-6  # a value of 1 would never change again


@kernel
def em(
    shown: Floats,
    clicked: Floats,
    prior: float,
    passes: int,
    tolerance: float,
    alpha: Floats,
    beta: Floats,
    sums: Floats,
) -> Effort:
    """Update ``alpha`` and ``beta`` in place until no product changes by more than a share ``tolerance`` in a pass.

    Ends after ``passes`` at most. ``sums`` (4, max(n, m)) is work: numerators and denominators of both.
    """
    for done in range(passes):
        if _pass(shown, clicked, prior, alpha, beta, sums) <= tolerance:
            return Effort(done + 1, True)
    return Effort(passes, False)


@kernel
def click_rates(shown: Floats, clicked: Floats, alpha: Floats, beta: Floats) -> None:
    """Fill in the starting point: the click rate of every item, and of every position relative to the largest."""
    n, m = shown.shape
    top = 0.0
    for j in range(m):
        clicks, impressions = 0.5, 1.0
        for i in range(n):
            clicks += clicked[i, j]
            impressions += shown[i, j]
        beta[j] = clicks / impressions
        if impressions > 1.0:
            top = max(top, beta[j])
    for j in range(m):
        beta[j] = min(beta[j] / top, CAP)
    for i in range(n):
        clicks, impressions = 0.5, 1.0
        for j in range(m):
            clicks += clicked[i, j]
            impressions += shown[i, j]
        alpha[i] = min(clicks / impressions, CAP)


@inner_kernel
def _pass(shown: Floats, clicked: Floats, prior: float, alpha: Floats, beta: Floats, sums: Floats) -> float:
    n, m = shown.shape
    for k in range(4):
        for i in range(sums.shape[1]):
            sums[k, i] = 0.0
    for i in range(n):
        for j in range(m):
            if shown[i, j] > 0.0:
                extra = prior * min(shown[i, j], 1.0)
                s, f = clicked[i, j] + extra, shown[i, j] - clicked[i, j] + extra
                miss = f / (1.0 - alpha[i] * beta[j])
                # Expected missing clicks on attractive items, and at examined positions.
                sums[0, i] += s + miss * alpha[i] * (1.0 - beta[j])
                sums[1, i] += s + f
                sums[2, j] += s + miss * beta[j] * (1.0 - alpha[i])
                sums[3, j] += s + f
    up, down = _update(alpha, sums[0], sums[1])
    higher, lower = _update(beta, sums[2], sums[3])
    return max(up * higher - 1.0, 1.0 - down * lower)


@inner_kernel
def _update(values: Floats, numerator: Floats, denominator: Floats) -> tuple[float, float]:
    """Set new values; return the largest and the smallest factor of change."""
    largest, smallest = 1.0, 1.0
    for k in range(values.size):
        if denominator[k] > 0.0 and values[k] > 0.0:
            new = min(numerator[k] / denominator[k], CAP)
            # A value that tends to 0 shrinks by a constant factor forever.
            if values[k] > 1e-12:
                largest = max(largest, new / values[k])
                smallest = min(smallest, new / values[k])
            values[k] = new
    return largest, smallest
