r"""Mixtures of marginals with other lists: uniform ones, and the page's own order, that a learner can start from.

A mixture with uniform lists gives every probability and every item's exposure a lower bound. A share :math:`\lambda_t`
of the pages shows the page's own order, with the matrix b. It depends on the number t of rounds that were learned from:

.. math:: \lambda_t = 0.9 \max(0, 1 - t / R), \qquad x'_{ij} = (1 - \lambda_t) x_{ij} + \lambda_t b_{ij}

Nothing of it is left after R rounds, in which that list is shown on about 0.45 R pages more than the learner would show
it. A tenth of the pages explores from the start. A mixture of feasible points is feasible, so what is drawn from it has
exactly these probabilities.
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
    """Return the marginals (n, m) of a mixture with one ranking of m items.

    >>> with_baseline(np.full((3, 2), 1 / 3), [2, 0], 0.4).round(2).tolist()
    [[0.2, 0.6], [0.2, 0.2], [0.6, 0.2]]
    """
    if share == 0.0:
        return marginals
    mixture = (1.0 - share) * marginals
    mixture[np.asarray(ranking), np.arange(len(ranking))] += share
    return mixture


def mixed(marginals: Floats, floor: float, exposure: float = 0.0) -> Floats:
    r"""Return the marginals (n, m) of a mixture with uniform lists.

    .. math:: x'_{ij} = (1 - \lambda) x_{ij} + \lambda / n

    with the smallest :math:`\lambda` that is at least ``floor`` and puts every item on at least a share ``exposure`` of
    the pages.

    >>> x = mixed(np.eye(4)[:, :2], floor=0.02, exposure=0.25)
    >>> x.sum(axis=1).round(3).tolist(), x.sum(axis=0).round(3).tolist()
    ([0.75, 0.75, 0.25, 0.25], [1.0, 1.0])
    """
    n = marginals.shape[0]
    share = max(floor, share_needed(marginals, exposure))
    return (1.0 - share) * marginals + share / n


def share_needed(marginals: Floats, exposure: float) -> float:
    """Return the share of uniform lists that puts every item on at least a share ``exposure`` of the pages.

    At most 1: uniform lists show every item on m/n of the pages, and no lists show all items more often.
    """
    n, m = marginals.shape
    least = float(marginals.sum(axis=1).min())
    if least >= exposure:
        return 0.0
    return min(1.0, (exposure - least) / (m / n - least)) if m / n > least else 1.0
