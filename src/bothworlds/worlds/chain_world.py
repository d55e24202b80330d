"""Worlds in which the user walks down the list: cascade, dependent click, dynamic Bayesian network, click chain.

The recursions are those with which the same models are fitted, in ``statistics/chain``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import number, probabilities, whole
from .best_list import BestList, best_of_chain, best_of_dependent_clicks
from .list_world import CompiledListWorld

if TYPE_CHECKING:
    from .users import ChainUsers


class Chain(CompiledListWorld):
    r"""Users who examine the first position, and go on from each to the next with a probability that depends on clicks.

    An examined item d is clicked with probability :math:`\alpha_d`. After a click the user goes on with probability
    :math:`\kappa`, which belongs to items or to positions, and otherwise with probability g:

    .. math:: P(c_k = 1) = u_k \alpha_{d_k}, \qquad u_1 = 1, \quad
        u_{k+1} = u_k \left(g (1 - \alpha_{d_k}) + \kappa_k \alpha_{d_k}\right)

    Every list takes 2m random numbers, so that two policies meet the same users. Best lists are exact where
    continuation belongs to items, where it rises or falls with the position, and for up to 18 items.

    Parameters
    ----------
    attraction
        (n_items,) probabilities of a click on an examined item.
    continuation
        (n_items,) or, with ``by_position``, (n_positions,) probabilities of going on after a click.
    skip
        The probability of going on after an item that was not clicked.
    n_positions
        The number of positions.
    """

    def __init__(
        self,
        attraction: ArrayLike,
        continuation: ArrayLike,
        skip: float = 1.0,
        *,
        n_positions: int,
        by_position: bool = False,
    ) -> None:
        self.attraction = probabilities(attraction, "attraction")
        self.continuation = probabilities(continuation, "continuation")
        self.skip, self.by_position = number(skip, "skip", 0.0, 1.0), bool(by_position)
        self._m = whole(n_positions, "n_positions", 1)
        if self._m > self.attraction.size:
            raise ValueError(f"n_positions must be at most the number of items, {self.attraction.size}; got {self._m}")
        expected = self._m if by_position else self.attraction.size
        if self.continuation.size != expected:
            what = "position" if by_position else "item"
            raise ValueError(f"continuation needs one entry for each {what}, {expected}; got {self.continuation.size}")

    @property
    def n_items(self) -> int:
        """The number of items to choose from."""
        return self.attraction.size

    @property
    def n_positions(self) -> int:
        """The number of positions to fill."""
        return self._m

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> ChainUsers:
        """Return the users, with item ``labels[i]`` as item i."""
        from .users import ChainUsers  # imports the compiler

        order = np.arange(self.n_items) if labels is None else labels
        return ChainUsers(
            attraction=self.attraction[order],
            continuation=self.continuation.copy() if self.by_position else self.continuation[order],
            skip=self.skip,
            by_position=self.by_position,
            starts=np.array([0, self._m]),
            positions=np.arange(self._m),
            marginal=np.empty(self._m),
        )

    def best_list(self, t: int) -> BestList:
        """Return the list with the most expected clicks."""
        alpha, kappa = self.attraction, self.continuation
        if not self.by_position:
            return best_of_chain(alpha, self.skip * (1.0 - alpha) + kappa * alpha, self._m)
        if self.skip < 1.0:
            return super().best_list(t)
        return best_of_dependent_clicks(alpha, kappa, lambda lists: self.expected_rewards(t, lists))

    def numbers(self) -> dict[str, Any]:
        """The probabilities of the chain."""
        return {
            "kind": "chain",
            "attraction": self.attraction.tolist(),
            "continuation": self.continuation.tolist(),
            "skip": self.skip,
            "n_positions": self._m,
            "by_position": self.by_position,
        }


def cascade(attraction: ArrayLike, n_positions: int) -> Chain:
    """Build users of the cascade model: they click the first item that attracts them, and leave.

    >>> round(cascade([0.5, 0.2, 0.1], 2).expected_reward(0, [0, 1]), 6)    # 1 - 0.5 * 0.8
    0.6
    """
    return Chain(attraction, np.zeros(np.shape(attraction)), n_positions=n_positions)


def dependent_clicks(attraction: ArrayLike, continuation: ArrayLike) -> Chain:
    """Build users of the dependent click model: after a click at position k they go on with ``continuation[k]``.

    >>> round(dependent_clicks([0.5, 0.2, 0.1], [0.5, 0.0]).expected_reward(0, [0, 1]), 6)    # 0.5 + 0.75 * 0.2
    0.65
    """
    return Chain(attraction, continuation, n_positions=np.size(continuation), by_position=True)


def dynamic_bayesian(attraction: ArrayLike, satisfaction: ArrayLike, gamma: float, n_positions: int) -> Chain:
    """Build users of the dynamic Bayesian network: they go on with probability ``gamma`` until an item satisfies.

    ``satisfaction`` (n_items,) is the probability that a click on the item ends the session; with ``gamma`` = 1 it is
    the simplified network.

    >>> world = dynamic_bayesian([0.5, 0.2], [0.5, 0.0], 0.8, 2)
    >>> round(world.expected_reward(0, [0, 1]), 6)    # 0.5 + 0.8 * 0.75 * 0.2
    0.62
    """
    from ..statistics.chain.families import DBN  # imports the compiler

    items = np.array([probabilities(attraction, "attraction"), probabilities(satisfaction, "satisfaction")])
    alpha, kappa, g = DBN.core(items, np.array([number(gamma, "gamma", 0.0, 1.0)]))
    return Chain(alpha, kappa, g, n_positions=n_positions)


def click_chain(attraction: ArrayLike, tau: ArrayLike, n_positions: int) -> Chain:
    """Build users of the click chain model: they go on with ``tau[0]`` after a skip.

    After a click on an item with attraction a they go on with probability ``tau[1] * (1 - a) + tau[2] * a``.
    """
    from ..statistics.chain.families import CCM  # imports the compiler

    shared = probabilities(tau, "tau")
    if shared.size != 3:
        raise ValueError(f"tau must be three probabilities; got {shared.size}")
    alpha, kappa, g = CCM.core(probabilities(attraction, "attraction")[None], shared)
    return Chain(alpha, kappa, g, n_positions=n_positions)
