"""Worlds that answer a whole list, because a click may depend on the other items and clicks.

A table of click probabilities cannot describe such users. A list world draws the clicks on a list and knows their
expected number, so that scores are free of the noise of clicks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import item_indices
from .base import World
from .best_list import BestList, search


class ListWorld(World):
    """Simulated users whose clicks on a list may depend on each other; in plain Python.

    A subclass draws clicks with ``click`` and returns their expected number with ``expected_reward``; the two must
    agree. A world that changes also overrides ``first_change`` and, for speed, ``spans`` and ``first_round_like``.
    """

    has_table = False

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        """Raises ValueError: the probability of a click depends on the rest of the list."""
        raise ValueError(
            f"in {self.name or type(self).__name__} a click depends on the rest of the list, so there is no table of "
            "click probabilities; use click and expected_reward"
        )

    @abstractmethod
    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        """Draw the clicks (n_positions,), 0 or 1, on a list in round t. All randomness comes from ``rng``."""

    @abstractmethod
    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list in round t."""

    def best_list(self, t: int) -> BestList:
        """Return the list with the largest expected number of clicks in round t, and how far it is certain.

        This default evaluates all lists if there are at most 20,000, and otherwise exchanges items while that helps.
        """
        return search(lambda lists: self.expected_rewards(t, lists), self.n_items, self.n_positions, 20_000)

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return None: the game calls ``click`` and ``expected_reward``."""
        return None

    def spans(self, start: int, stop: int) -> Iterator[int]:
        """Split the rounds from ``start`` up to ``stop`` where users change: yield the end of each part.

        By default, all rounds are one part if ``first_change`` returns None, and otherwise each is its own.
        """
        if start < stop:
            yield from (stop,) if self.first_change() is None else range(start + 1, stop + 1)

    def first_round_like(self, t: int) -> int:
        """Return the first round whose users are those of round t, or t itself if this is not known."""
        return 0 if self.first_change() is None else t


class CompiledListWorld(ListWorld):
    """A list world that never changes, whose users are a NamedTuple with compiled kernels."""

    @abstractmethod
    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users with their own work arrays, with item ``labels[i]`` as item i."""

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the clicks (n_positions,) on a list."""
        from .users import clicks_on  # imports the compiler

        return clicks_on(self.users(t), item_indices(ranking, self.n_items), rng, self.n_positions)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list."""
        from .users import reward_of

        return reward_of(self.users(t), item_indices(ranking, self.n_items))

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists (count, n_positions)."""
        from .users import rewards_of

        return rewards_of(self.users(t), item_indices(rankings, self.n_items))
