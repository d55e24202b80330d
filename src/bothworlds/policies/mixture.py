"""Two learners that a policy mixes and compares: what a decision records, and what its clicks add to the comparison.

The policy draws from the first learner, with marginals x, with probability w, and from the second, with marginals s,
otherwise. If nothing else is recorded, every loss is predicted to be 1/2. Then nothing but the cells that were shown
matters, because both learners fill every position. With other predictions, a decision records them, and what they
expect of the difference. In both cases the comparison is a sum over decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import Decision
from .predictions import LEAST_ERROR, MOST_ERROR, PagePrediction

__all__ = ["Mixture", "comparison_sums"]

Number = TypeVar("Number", int, float)


class Mixture(NamedTuple):
    """The share w of the first learner, and s - x, the marginals of the second minus those of the first (n, m).

    ``limit`` is the largest weight of a placement in the comparison.
    """

    share: float
    tilt: NDArray[np.float64]
    limit: float

    def weights(self, marginals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return g = (s - x) / p of every placement, for the marginals p (n, m) that decisions are drawn with."""
        return np.clip(self.tilt / marginals, -self.limit, self.limit)

    def expected_difference(self, expected: NDArray[np.float64]) -> float:
        """Return the sum of (s - x) b over all cells, for predicted losses b (n, m)."""
        return float((self.tilt * expected).sum())

    def record(self, decision: Decision) -> tuple[float, ...]:
        """Return what a decision has to record: w, and g for every position."""
        tilt = self.tilt[decision.ranking, np.arange(decision.ranking.size)]
        return self.share, *self._replace(tilt=tilt).weights(decision.propensity).tolist()


def comparison_sums(
    share: float,
    placements: Iterable[tuple[float, float]],
    rounded: Callable[[float], Number],
    prediction: PagePrediction | None = None,
) -> tuple[Number, Number, Number]:
    """Return what a decision adds to spread, difference and variance of a ``core.Block``.

    ``placements`` are g and the click, or the reward in [0, 1], of every position that is learned from. Without a
    prediction, the spread is 4/w - 4; the difference is the sum of g (1/2 - click), whose mean is the loss of s minus
    that of x; the variance is the sum of the squares of its terms. With a prediction, the spread is max(0.1, 4 times
    the mean squared error of b') / w - 4; b replaces 1/2, and what it expects of the difference is added. Every term
    is rounded, so that sums do not depend on their order where ``rounded`` returns whole numbers.

    >>> comparison_sums(0.5, [(1.0, 0.0), (-2.0, 1.0)], float)
    (4.0, 1.5, 1.25)
    >>> comparison_sums(0.5, [(1.0, 0.0), (-2.0, 1.0)], float, PagePrediction((0.75, 0.25), (0.75, 0.25), 0.5))
    (-3.5, 1.25, 0.5625)
    """
    given = list(placements)
    expected = (0.5,) * len(given) if prediction is None else prediction.expected
    predicted = 0.0 if prediction is None else prediction.difference
    difference, variance = rounded(predicted), rounded(predicted * predicted)
    for (g, click), b in zip(given, expected, strict=True):
        error = g * (1.0 - click - b)
        difference += rounded(error)
        variance += rounded(error * error)
    added = MOST_ERROR
    if prediction is not None:
        squares = sum((1.0 - click - b) ** 2 for (_, click), b in zip(given, prediction.used, strict=True))
        added = max(LEAST_ERROR, MOST_ERROR / len(given) * squares)
    return rounded(added / share - 4.0), difference, variance
