"""The probability of each item at each position in the next decision of a policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import NO_CONTEXT
from ..kernels import Floats, Ints


def known_marginals(policy: Any, state: Any, context: Ints = NO_CONTEXT) -> Floats | None:
    """Return the marginals (n_items, n_positions) that the policy states for a context, or None if it states none.

    Returns uniform marginals where those of the policy are not finite, because its solver has failed.
    """
    marginals = getattr(policy, "marginals", None)
    known = None if marginals is None else marginals(state, context) if context.size else marginals(state)
    if known is None:
        return None
    return np.array(known) if np.isfinite(known).all() else np.full(known.shape, 1.0 / len(known))


def frequencies(rankings: Iterable[Ints], shape: tuple[int, int]) -> Floats:
    """Return how often each item is at each position (n_items, n_positions), as a share of the rankings.

    >>> frequencies([np.array([0, 1]), np.array([2, 1])], (3, 2)).tolist()
    [[0.5, 0.0], [0.0, 1.0], [0.5, 0.0]]
    """
    counts, positions, number = np.zeros(shape), np.arange(shape[1]), 0
    for ranking in rankings:
        counts[ranking, positions] += 1.0
        number += 1
    return counts / number


def most_shown_rows(marginals: Floats, most: int) -> Ints:
    """Return the rows of (n_items, n_positions) marginals with the largest sums, at most so many, in their order.

    >>> most_shown_rows(np.array([[0.1], [0.7], [0.2]]), 2).tolist()
    [1, 2]
    """
    if len(marginals) <= most:
        return np.arange(len(marginals))
    return np.sort(np.argsort(-marginals.sum(axis=1), kind="stable")[:most])


def entropy_of(marginals: Floats) -> float:
    """Return the entropy of (n_items, n_positions) marginals, in nats per position.

    It is log(n_items) for uniform lists, and 0 if the list is always the same or there is no position.
    """
    if marginals.shape[1] == 0:
        return 0.0
    x = marginals[marginals > 0.0]
    return float(-(x * np.log(x)).sum() / marginals.shape[1])
