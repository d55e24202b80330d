r"""Probabilities of clicks under a chain model, page by page.

The user examines the first rank. An examined item is clicked with probability :math:`\alpha_k`. After a skip the user
goes on with probability g, after a click with probability :math:`\kappa_k`.

Pages are arrays: results ``starts[p]`` to ``starts[p + 1]`` of ``row`` (the index of the item) and ``rank`` belong to
page p. ``kappa`` is indexed by row, or by rank if ``by_rank``.
"""

from __future__ import annotations

from typing import Any

from ...kernels import Floats, Ints, inner_kernel, kernel


@inner_kernel
def _index(row: int, rank: int, by_rank: bool) -> int:
    return rank if by_rank else row


@kernel
def conditional_probabilities(
    starts: Ints, row: Any, rank: Any, click: Any, alpha: Floats, kappa: Floats, g: float, by_rank: bool, p: Floats
) -> None:
    r"""Fill in :math:`P(c_k = 1 \mid c_{<k}) = e_k \alpha_k` of every result.

    :math:`e_1 = 1`; then :math:`e_{k+1} = \kappa_k` after a click, and :math:`g e_k (1 - \alpha_k) / (1 - e_k
    \alpha_k)` after a skip. After an event of probability 0, e is 0.
    """
    for page in range(starts.size - 1):
        e = 1.0
        for k in range(starts[page], starts[page + 1]):
            a = alpha[row[k]]
            p[k] = e * a
            if click[k] == 1:
                e = kappa[_index(row[k], rank[k], by_rank)]
            else:
                left = 1.0 - e * a
                e = g * e * (1.0 - a) / left if left > 0.0 else 0.0


@kernel
def marginal_probabilities(
    starts: Ints, row: Any, rank: Any, alpha: Floats, kappa: Floats, g: float, by_rank: bool, p: Floats
) -> None:
    r"""Fill in :math:`P(c_k = 1) = u_k \alpha_k`: :math:`u_1 = 1, u_{k+1} = u_k (g (1 - \alpha_k) + \kappa_k
    \alpha_k)`."""
    for page in range(starts.size - 1):
        u = 1.0
        for k in range(starts[page], starts[page + 1]):
            a = alpha[row[k]]
            p[k] = u * a
            u *= g * (1.0 - a) + kappa[_index(row[k], rank[k], by_rank)] * a


@kernel
def simulate(
    rng: Any, starts: Ints, row: Any, rank: Any, alpha: Floats, kappa: Floats, g: float, by_rank: bool, click: Any
) -> None:
    """Draw the clicks of every page, with two uniform numbers for every result, whether they are needed or not."""
    for page in range(starts.size - 1):
        examined = True
        for k in range(starts[page], starts[page + 1]):
            attracted, goes_on = rng.random() < alpha[row[k]], rng.random()
            click[k] = 1 if examined and attracted else 0
            limit = kappa[_index(row[k], rank[k], by_rank)] if click[k] == 1 else g
            examined = examined and goes_on < limit
