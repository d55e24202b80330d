"""Two learners that a policy mixes and compares: what a decision records, and what its clicks add to the comparison.

The policy draws from the first learner, with marginals x, with probability w, and from the second, with marginals s,
otherwise. Every loss is predicted to be 1/2. Then nothing but the cells that were shown matters, because both learners
fill every position, and the comparison is a sum over decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import Decision

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

    def record(self, decision: Decision) -> tuple[float, ...]:
        """Return what a decision has to record: w, and g for every position."""
        tilt = self.tilt[decision.ranking, np.arange(decision.ranking.size)]
        return self.share, *self._replace(tilt=tilt).weights(decision.propensity).tolist()


def comparison_sums(
    share: float, placements: Iterable[tuple[float, float]], rounded: Callable[[float], Number]
) -> tuple[Number, Number, Number]:
    """Return what a decision adds to spread, difference and variance of a ``core.Block``.

    ``placements`` are g and the click, or the reward in [0, 1], of every position that is learned from. The spread is
    4/w - 4; the difference is the sum of g (1/2 - click), whose mean is the loss of s minus that of x; the variance is
    the sum of g^2 / 4, which no reward exceeds. Every term is rounded, so that sums do not depend on their order where
    ``rounded`` returns whole numbers.

    >>> comparison_sums(0.5, [(1.0, 0.0), (-2.0, 1.0)], float)
    (4.0, 1.5, 1.25)
    """
    difference = variance = rounded(0.0)
    for g, click in placements:
        difference += rounded(g * (0.5 - click))
        variance += rounded(0.25 * g * g)
    return rounded(4.0 / share - 4.0), difference, variance
