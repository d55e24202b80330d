r"""Mixtures with uniform lists, which give every probability and every item's exposure a lower bound."""

from __future__ import annotations

from ..kernels import Floats


def mixed(marginals: Floats, floor: float, exposure: float = 0.0) -> Floats:
    r"""Return the marginals (n, m) of a mixture with uniform lists.

    .. math:: x'_{ij} = (1 - \lambda) x_{ij} + \lambda / n

    with the smallest :math:`\lambda` that is at least ``floor`` and puts every item on at least a share ``exposure`` of
    the pages. A mixture of feasible points is feasible, so what is drawn from it has exactly these probabilities.

    >>> import numpy as np
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
