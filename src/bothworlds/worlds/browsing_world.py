"""Worlds of the user browsing model: examination depends on where the last click above was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import probabilities
from .best_list import ENUMERATED, BestList, browsing_bound, search
from .list_world import CompiledListWorld

if TYPE_CHECKING:
    from .users import BrowsingUsers


class Browsing(CompiledListWorld):
    r"""Users who examine a position depending on the position of the last click above it.

    .. math:: P(c_k = 1 \mid c_{<k}) = \alpha_{d_k} \gamma_{k k'}

    where k' is the position of the last click above k, and 0 if there is none. Every list takes m random numbers. The
    best list is exact where there are at most 200,000 lists; otherwise local search is compared with an upper bound.

    Parameters
    ----------
    attraction
        (n_items,)
    examination
        (m (m + 1) / 2,) in the order (1, 0), (2, 0), (2, 1), (3, 0), ... of pairs (k, k').
    """

    def __init__(self, attraction: ArrayLike, examination: ArrayLike) -> None:
        self.attraction = probabilities(attraction, "attraction")
        self.examination_by_column = probabilities(examination, "examination")
        size = self.examination_by_column.size
        self._m = (math.isqrt(8 * size + 1) - 1) // 2
        if self._m * (self._m + 1) // 2 != size:
            raise ValueError(
                "examination needs an entry for every pair of a position and the last click above it, 1, 3, 6, 10, "
                f"... in all; got {size}"
            )
        if self._m > self.attraction.size:
            raise ValueError(
                f"examination must not have more positions than there are items; got {self._m} positions and "
                f"{self.attraction.size} items"
            )

    @property
    def n_items(self) -> int:
        """The number of items to choose from."""
        return self.attraction.size

    @property
    def n_positions(self) -> int:
        """The number of positions to fill."""
        return self._m

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> BrowsingUsers:
        """Return the users, with item ``labels[i]`` as item i."""
        from .users import BrowsingUsers  # imports the compiler

        order = np.arange(self.n_items) if labels is None else labels
        return BrowsingUsers(
            attraction=self.attraction[order],
            examination=self.examination_by_column.copy(),
            starts=np.array([0, self._m]),
            positions=np.arange(self._m),
            last=np.empty(self._m + 1),
            marginal=np.empty(self._m),
        )

    def best_list(self, t: int) -> BestList:
        """Return the list with the most expected clicks."""
        bound = browsing_bound(self.attraction, self.examination_by_column, self._m)
        return search(lambda lists: self.expected_rewards(t, lists), self.n_items, self._m, ENUMERATED, bound)

    def numbers(self) -> dict[str, Any]:
        """Attraction, and examination by column."""
        return {
            "kind": "browsing",
            "attraction": self.attraction.tolist(),
            "examination": self.examination_by_column.tolist(),
        }


def browsing(attraction: ArrayLike, examination: ArrayLike) -> Browsing:
    """Build users of the user browsing model; see :class:`Browsing`.

    >>> world = browsing([0.5, 0.2], [1.0, 0.5, 0.8])    # position 2 is examined more often after a click at 1
    >>> round(world.expected_reward(0, [0, 1]), 6)
    0.63
    """
    return Browsing(attraction, examination)
