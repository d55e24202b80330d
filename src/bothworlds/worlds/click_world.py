"""Worlds in which a click depends on the clicks above: cascade, dependent click, click chain, browsing, and others.

The users are those with which the same models are fitted, in ``statistics/click_users.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import number, probabilities, whole
from .best_list import ENUMERATED, BestList, best_of_chain, best_of_dependent_clicks, browsing_bound, search
from .list_world import CompiledListWorld

if TYPE_CHECKING:
    from ..statistics.click_users import Users


class ClickWorld(CompiledListWorld):
    r"""Users who walk down the list; examination and going on depend on the clicks above.

    A user who still reads at position k, with the last click above at position l (0 if there was none), clicks with
    probability :math:`\alpha_{d_k} \gamma_{k l}`. After a click the user goes on with probability :math:`\kappa`, which
    belongs to items or to positions, and otherwise with probability g.

    Every list takes 2m random numbers, so that two policies meet the same users. Best lists are exact where
    examination is 1 and continuation belongs to items, or rises or falls with the position, or there are at most 18
    items; in other worlds where there are at most 200,000 lists. Otherwise local search is compared with a bound.

    ``attraction`` (n_items,) is alpha, and ``examination`` (m (m + 1) / 2,) gamma in the order (1, 0), (2, 0), (2, 1),
    (3, 0), ... of pairs (k, l). ``continuation`` is kappa, (n_items,) or, with ``by_position``, (n_positions,).
    ``skip`` is g, the probability of going on after an item that was not clicked. All but attraction are 1 by default.
    """

    def __init__(
        self,
        attraction: ArrayLike,
        n_positions: int,
        *,
        examination: ArrayLike | None = None,
        continuation: ArrayLike | None = None,
        skip: float = 1.0,
        by_position: bool = False,
    ) -> None:
        self.attraction = probabilities(attraction, "attraction")
        self.skip, self.by_position = number(skip, "skip", 0.0, 1.0), bool(by_position)
        n, m = self.n_items, self.n_positions = self.attraction.size, whole(n_positions, "n_positions", 1)
        if m > n:
            raise ValueError(f"n_positions must be at most the number of items, {n}; got {m}")
        columns, expected = m * (m + 1) // 2, m if by_position else n
        given = np.ones(columns) if examination is None else examination
        self.examination_by_column = probabilities(given, "examination")
        self.continuation = probabilities(np.ones(expected) if continuation is None else continuation, "continuation")
        if self.examination_by_column.size != columns:
            raise ValueError(
                "examination needs an entry for every pair of a position and the last click above it, "
                f"{columns} in all; got {self.examination_by_column.size}"
            )
        if self.continuation.size != expected:
            what = "position" if by_position else "item"
            raise ValueError(f"continuation needs one entry for each {what}, {expected}; got {self.continuation.size}")

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Users:
        from ..statistics.click_users import make_users  # imports the compiler
        from . import users  # noqa: F401, registers the clicks of users, which other compiled code calls

        order = np.arange(self.n_items) if labels is None else labels
        return make_users(
            self.attraction[order],
            self.n_positions,
            examination=self.examination_by_column.copy(),
            continuation=self.continuation.copy() if self.by_position else self.continuation[order],
            skip=self.skip,
            by_rank=self.by_position,
        )

    def best_list(self, t: int) -> BestList:
        alpha, kappa = self.attraction, self.continuation
        if (self.examination_by_column == 1.0).all():
            if not self.by_position:
                return best_of_chain(alpha, self.skip * (1.0 - alpha) + kappa * alpha, self.n_positions)
            if self.skip == 1.0:
                return best_of_dependent_clicks(alpha, kappa, lambda lists: self.expected_rewards(t, lists))
        bound = browsing_bound(alpha, self.examination_by_column, self.n_positions)
        return search(lambda lists: self.expected_rewards(t, lists), self.n_items, self.n_positions, ENUMERATED, bound)

    def numbers(self) -> dict[str, Any]:
        return {
            "kind": "clicks",
            "attraction": self.attraction.tolist(),
            "n_positions": self.n_positions,
            "examination": self.examination_by_column.tolist(),
            "continuation": self.continuation.tolist(),
            "skip": self.skip,
            "by_position": self.by_position,
        }


def world_of(
    model: str, items: Mapping[str, ArrayLike], shared: Mapping[str, ArrayLike], n_positions: int
) -> ClickWorld:
    """Build the users of a click model whose clicks depend on each other, from its parameters by name.

    >>> world_of("cascade", {"attraction": [0.5, 0.2]}, {}, 2)
    <ClickWorld: 2 items, 2 positions>
    """
    from ..statistics.click_users import users_of  # imports the compiler

    of_items, of_all = (
        {name: probabilities(values, name) for name, values in part.items()} for part in (items, shared)
    )
    users = users_of(model, of_items, of_all, of_items["attraction"].size, n_positions)
    return ClickWorld(
        users.attraction,
        n_positions,
        examination=users.examination,
        continuation=users.continuation,
        skip=users.skip,
        by_position=users.by_rank,
    )


def cascade(attraction: ArrayLike, n_positions: int) -> ClickWorld:
    """Build users of the cascade model: they click the first item that attracts them, and leave.

    >>> round(cascade([0.5, 0.2, 0.1], 2).expected_reward(0, [0, 1]), 6)    # 1 - 0.5 * 0.8
    0.6
    """
    return ClickWorld(attraction, n_positions, continuation=np.zeros(np.size(attraction)))


def dependent_clicks(attraction: ArrayLike, continuation: ArrayLike) -> ClickWorld:
    """Build users of the dependent click model: after a click at position k they go on with ``continuation[k]``.

    >>> round(dependent_clicks([0.5, 0.2, 0.1], [0.5, 0.0]).expected_reward(0, [0, 1]), 6)    # 0.5 + 0.75 * 0.2
    0.65
    """
    return ClickWorld(attraction, np.size(continuation), continuation=continuation, by_position=True)


def dynamic_bayesian(attraction: ArrayLike, satisfaction: ArrayLike, gamma: float, n_positions: int) -> ClickWorld:
    """Build users of the dynamic Bayesian network: they go on with probability ``gamma`` until an item satisfies.

    ``satisfaction`` (n_items,) is the probability that a click on the item ends the session; with ``gamma`` = 1 it is
    the simplified network.

    >>> world = dynamic_bayesian([0.5, 0.2], [0.5, 0.0], 0.8, 2)
    >>> round(world.expected_reward(0, [0, 1]), 6)    # 0.5 + 0.8 * 0.75 * 0.2
    0.62
    """
    items = {"attraction": attraction, "satisfaction": satisfaction}
    return world_of("dbn", items, {"gamma": [number(gamma, "gamma", 0.0, 1.0)]}, n_positions)


def click_chain(attraction: ArrayLike, tau: ArrayLike, n_positions: int) -> ClickWorld:
    """Build users of the click chain model: they go on with ``tau[0]`` after a skip.

    After a click on an item with attraction a they go on with probability ``tau[1] * (1 - a) + tau[2] * a``.
    """
    shared = probabilities(tau, "tau")
    if shared.size != 3:
        raise ValueError(f"tau must be three probabilities; got {shared.size}")
    return world_of(
        "ccm", {"attraction": attraction}, {f"tau {k + 1}": shared[k : k + 1] for k in range(3)}, n_positions
    )


def browsing(attraction: ArrayLike, examination: ArrayLike) -> ClickWorld:
    """Build users of the user browsing model, who examine a position depending on that of the last click above.

    ``examination`` is in the order (1, 0), (2, 0), (2, 1), (3, 0), ... of pairs of a position and the last click.

    >>> world = browsing([0.5, 0.2], [1.0, 0.5, 0.8])    # position 2 is examined more often after a click at 1
    >>> round(world.expected_reward(0, [0, 1]), 6)
    0.63
    """
    return ClickWorld(attraction, (math.isqrt(8 * np.size(examination) + 1) - 1) // 2, examination=examination)
