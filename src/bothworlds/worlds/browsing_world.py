"""Worlds of the user browsing model: examination depends on where the last click above was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import clicks, expects
from ..kernels import Floats, Ints
from ..statistics.browsing import marginal_probabilities, ranks_of_column, simulate
from .base import as_probability_vector
from .best_list import ENUMERATED, BestList, browsing_bound, search
from .list_world import CompiledListWorld

__all__ = ["Browsing", "BrowsingUsers", "browsing"]


class BrowsingUsers(NamedTuple):
    """Users of the user browsing model, and work arrays."""

    attraction: Floats  # (n,) alpha
    examination: Floats  # (m (m + 1) / 2,) gamma, by column
    starts: Ints  # (2,) 0 and m: a list is one page
    positions: Ints  # (m,)
    last: Floats  # (m + 1,) work
    marginal: Floats  # (m,) work


@clicks(BrowsingUsers)
def click(state: BrowsingUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    simulate(rng, state.starts, ranking, state.positions, state.attraction, state.examination, clicks)


@expects(BrowsingUsers)
def expected_reward(state: BrowsingUsers, ranking: Ints) -> float:
    marginal_probabilities(
        state.starts, ranking, state.positions, state.attraction, state.examination, state.last, state.marginal
    )
    total = 0.0
    for k in range(ranking.size):
        total += state.marginal[k]
    return total


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
        self.attraction = as_probability_vector(attraction, "attraction")
        self.examination_by_column = as_probability_vector(examination, "examination")
        rank, last = ranks_of_column(self.examination_by_column.size - 1)
        if last != rank - 1:
            raise ValueError(
                "examination needs an entry for every pair of a position and the last click above it, 1, 3, 6, 10, "
                f"... in all; got {self.examination_by_column.size}"
            )
        self._m = rank
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
