r"""Predicted losses that stay in force for many decisions, for leaders whose state is computed from sums.

A leader may subtract from the loss of a placement any prediction b' that is fixed before the decision:

.. math::

    \hat L_{ij} \mathrel{+}= b'_{ij}
        + \frac{1 - \text{click}_j - b'_{ij}}{p_{ij}} \, [\text{item } i \text{ is shown at position } j]

is the loss on average, whatever b' is, as long as b' is added for *all* pairs. If the same b' stays in force for many
decisions, the first term is the number of these decisions times b', so that all of it remains a sum over decisions in
any order. Predictions are whole multiples of 1/256: exact, and one byte for each pair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import Floats

__all__ = [
    "FIRST_ROUNDS",
    "UNITS",
    "PagePrediction",
    "Predictions",
    "exceeds_limit",
    "in_units",
    "needs_renewal",
    "next_renewal",
]

UNITS = 256  # predictions are whole multiples of 1/UNITS, below 1
FIRST_ROUNDS = 10  # before that, there is nothing to predict from
GROWTH = 0.1  # predictions are renewed when the rounds that they are based on have grown by this share
LEAST_GROWTH = 0.1  # of that, before they are renewed because they exceed the limit
LEAST_ERROR, MOST_ERROR = 0.1, 4.0  # what a round can add to R, times the share of the leader

Units = NDArray[np.uint8]


class Predictions(NamedTuple):
    """What a policy predicts in its present state.

    ``expected`` (n, m) are the losses that it expects. ``used`` (n, m) are those that its leader subtracts, and
    ``limit`` (n, m) is the most that it may subtract without becoming unstable. ``memory`` is the number of rounds that
    they are based on.
    """

    expected: Floats
    used: Floats
    limit: Floats
    memory: float

    def drawn_with(self, marginals: Floats, own: Floats) -> Predictions:
        """Return the predictions for lists that are drawn with other marginals than those of the policy (n, m).

        Where a pair is less likely than the policy intends, because uniform lists are mixed in, an estimate is larger.

        >>> made = Predictions(*np.full((3, 2, 1), 0.5), memory=9.0)
        >>> made.drawn_with(np.array([[0.72], [0.28]]), own=np.array([[0.9], [0.1]])).limit.round(3).tolist()
        [[0.4], [0.4]]
        """
        share = min(1.0, float((marginals[own > 0.0] / own[own > 0.0]).min()))
        return self._replace(used=share * self.used, limit=share * self.limit)


class PagePrediction(NamedTuple):
    """The predictions for the placements of one decision: b' and b of every position that is learned from.

    ``difference`` is the expected loss of the second learner minus that of the first, of a policy that mixes two.
    """

    used: tuple[float, ...]
    expected: tuple[float, ...]
    difference: float


def in_units(values: Floats) -> Units:
    """Return predictions as whole multiples of 1/256, rounded down.

    >>> in_units(np.array([0.0, 0.5, 0.9999])).tolist()
    [0, 128, 255]
    """
    return np.clip(np.floor(UNITS * values), 0, UNITS - 1).astype(np.uint8)


def next_renewal(rounds: int, memory: float) -> int:
    """Return the number of rounds at which predictions that are made now have to be renewed.

    >>> next_renewal(5, 5.0), next_renewal(1000, 1000.0), next_renewal(1000, 50.0)
    (6, 1100, 1005)
    """
    return rounds + max(1, math.ceil(GROWTH * memory))


def exceeds_limit(used: Units, now: Predictions) -> bool:
    """Return whether predictions that are in force exceed what the leader may subtract now; then it must not."""
    return bool((used > UNITS * now.limit).any())


def needs_renewal(used: Units, made_at: int, renew_at: int, rounds: int, now: Predictions) -> bool:
    """Return whether predictions that were made at a number of rounds have to be renewed after ``rounds`` rounds."""
    if not made_at <= rounds < renew_at:
        return True
    return rounds - made_at >= LEAST_GROWTH * (renew_at - made_at) and exceeds_limit(used, now)
