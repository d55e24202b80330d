"""Users who answer a whole list, for compiled loops, and calls of their kernels from Python.

This module imports the compiler; worlds import it when their users are first needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import click, clicks, expected_reward, expects
from ..kernels import Floats, Ints, kernel
from ..statistics import browsing
from ..statistics.chain import recursions as chain

__all__ = ["BrowsingUsers", "ChainUsers", "TableUsers", "clicks_on", "reward_of", "rewards_of"]


class TableUsers(NamedTuple):
    """Users with a table of click probabilities, for loops that ask for whole lists."""

    probabilities: Floats  # (n, m)


@clicks(TableUsers)
def click_independently(state: TableUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    for j in range(ranking.size):
        clicks[j] = 1.0 if rng.random() < state.probabilities[ranking[j], j] else 0.0


@expects(TableUsers)
def expected_of_table(state: TableUsers, ranking: Ints) -> float:
    total = 0.0
    for j in range(ranking.size):
        total += state.probabilities[ranking[j], j]
    return total


class ChainUsers(NamedTuple):
    """Users who walk down the list, and work arrays."""

    attraction: Floats  # (n,) alpha
    continuation: Floats  # kappa: (n,) of items, or (m,) of positions
    skip: float  # g, the probability of going on after an item that was not clicked
    by_position: bool
    starts: Ints  # (2,) 0 and m: a list is one page
    positions: Ints  # (m,)
    marginal: Floats  # (m,) work


@clicks(ChainUsers)
def click_down_the_chain(state: ChainUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    chain.simulate(
        rng, state.starts, ranking, state.positions, state.attraction, state.continuation, state.skip,
        state.by_position, clicks,
    )  # fmt: skip


@expects(ChainUsers)
def expected_of_chain(state: ChainUsers, ranking: Ints) -> float:
    chain.marginal_probabilities(
        state.starts, ranking, state.positions, state.attraction, state.continuation, state.skip, state.by_position,
        state.marginal,
    )  # fmt: skip
    total = 0.0
    for k in range(ranking.size):
        total += state.marginal[k]
    return total


class BrowsingUsers(NamedTuple):
    """Users of the user browsing model, and work arrays."""

    attraction: Floats  # (n,) alpha
    examination: Floats  # (m (m + 1) / 2,) gamma, by column
    starts: Ints  # (2,) 0 and m: a list is one page
    positions: Ints  # (m,)
    last: Floats  # (m + 1,) work
    marginal: Floats  # (m,) work


@clicks(BrowsingUsers)
def click_while_browsing(state: BrowsingUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    browsing.simulate(rng, state.starts, ranking, state.positions, state.attraction, state.examination, clicks)


@expects(BrowsingUsers)
def expected_of_browsing(state: BrowsingUsers, ranking: Ints) -> float:
    browsing.marginal_probabilities(
        state.starts, ranking, state.positions, state.attraction, state.examination, state.last, state.marginal
    )
    total = 0.0
    for k in range(ranking.size):
        total += state.marginal[k]
    return total


def clicks_on(users: Any, ranking: ArrayLike, rng: np.random.Generator, n_positions: int) -> NDArray[np.float64]:
    """Draw the clicks (n_positions,) of users on a list."""
    drawn = np.empty(n_positions)
    click(users, np.ascontiguousarray(ranking, dtype=np.int64), rng, drawn)
    return drawn


def reward_of(users: Any, ranking: ArrayLike) -> float:
    """Return the expected number of clicks of users on a list."""
    return expected_reward(users, np.ascontiguousarray(ranking, dtype=np.int64))


def rewards_of(users: Any, rankings: ArrayLike) -> NDArray[np.float64]:
    """Return the expected number of clicks of users on each of several lists (count, n_positions)."""
    lists = np.array(rankings, np.int64, order="C")
    values = np.empty(len(lists))
    _fill_rewards(users, lists, values)
    return values


@kernel
def _fill_rewards(users: Any, rankings: Ints, values: Floats) -> None:
    for k in range(rankings.shape[0]):
        values[k] = expected_reward(users, rankings[k])
