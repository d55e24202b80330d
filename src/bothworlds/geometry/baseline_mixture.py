r"""Mixtures with one list, the page's own order, that a learner can start from.

A share :math:`\lambda_t` of the pages shows that list. It depends on the number t of rounds that were learned from:

.. math:: \lambda_t = 0.9 \max(0, 1 - t / R), \qquad x'_{ij} = (1 - \lambda_t) x_{ij} + \lambda_t b_{ij}

where b is the matrix of the list. Nothing of it is left after R rounds, in which the list is shown on about 0.45 R
pages more than the learner would show it. A tenth of the pages explores from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..kernels import Floats

FIRST_SHARE = 0.9


def baseline_share(learned: int, rounds: int) -> float:
    """Return the share of pages that show the page's own order after ``learned`` rounds, if it is left in ``rounds``.

    >>> [round(baseline_share(t, 1000), 2) for t in (0, 500, 1000, 5000)], baseline_share(0, 0)
    ([0.9, 0.45, 0.0, 0.0], 0.0)
    """
    return FIRST_SHARE * (1.0 - learned / rounds) if learned < rounds else 0.0


def with_baseline(marginals: Floats, ranking: Sequence[int], share: float) -> Floats:
    """Return the marginals (n, m) of a mixture with one ranking of m items; a mixture of feasible points is feasible.

    >>> with_baseline(np.full((3, 2), 1 / 3), [2, 0], 0.4).round(2).tolist()
    [[0.2, 0.6], [0.2, 0.2], [0.6, 0.2]]
    """
    if share == 0.0:
        return marginals
    mixture = (1.0 - share) * marginals
    mixture[np.asarray(ranking), np.arange(len(ranking))] += share
    return mixture
