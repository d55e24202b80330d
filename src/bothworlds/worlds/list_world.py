"""Worlds that answer a whole list, because a click may depend on the other items and clicks.

A table of click probabilities cannot describe such users. A list world draws the clicks on a list and knows their
expected number, so that scores are free of the noise of clicks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import World
from .best_list import BestList, search
from .settings import whole

__all__ = ["CompiledListWorld", "ListWorld", "PeriodicLists", "RelabelledLists"]


class ListWorld(World):
    """Simulated users whose clicks on a list may depend on each other; in plain Python.

    A subclass draws clicks with ``click`` and returns their expected number with ``expected_reward``; the two must
    agree. A world that changes also overrides ``first_change`` and, for speed, ``spans`` and ``first_round_like``.
    """

    @abstractmethod
    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        """Draw the clicks (n_positions,), 0 or 1, on a list in round t. All randomness comes from ``rng``."""

    @abstractmethod
    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list in round t."""

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        """Raises ValueError: the probability of a click depends on the rest of the list."""
        raise ValueError(
            f"in {self.name or type(self).__name__} a click depends on the rest of the list, so there is no table of "
            "click probabilities; use click and expected_reward"
        )

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users of round t for compiled loops, with item ``labels[i]`` as item i; None in plain Python.

        The users are a NamedTuple with kernels registered by :func:`bothworlds.core.clicks` and
        :func:`bothworlds.core.expects`. Each call returns its own work arrays.
        """
        return None

    def spans(self, start: int, stop: int) -> Iterator[int]:
        """Split the rounds from ``start`` up to ``stop`` where users change; yields the end of each part.

        By default, all rounds are one part if ``first_change`` returns None, and otherwise each is its own.
        """
        if start < stop:
            yield from (stop,) if self.first_change() is None else range(start + 1, stop + 1)

    def first_round_like(self, t: int) -> int:
        """Return the first round whose users are those of round t, or t itself if this is not known."""
        return 0 if self.first_change() is None else t

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists (count, n_positions) in round t."""
        return np.array([self.expected_reward(t, ranking) for ranking in rankings])

    def best_list(self, t: int) -> BestList:
        """Return the list with the largest expected number of clicks in round t, and how far it is certain.

        This default evaluates all lists if there are at most 20,000, and otherwise exchanges items while that helps.
        """
        return search(lambda lists: self.expected_rewards(t, lists), self.n_items, self.n_positions, 20_000)

    def relabelled(self, labels: NDArray[np.int64]) -> RelabelledLists:
        """Return this world with item ``labels[i]`` as item i."""
        return RelabelledLists(self, labels)


class CompiledListWorld(ListWorld):
    """A list world that never changes, whose users are a NamedTuple with compiled kernels."""

    @abstractmethod
    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users with their own work arrays, with item ``labels[i]`` as item i."""

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the clicks (n_positions,) on a list."""
        from .users import clicks_on  # imports the compiler

        return clicks_on(self.users(t), ranking, rng, self.n_positions)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list."""
        from .users import reward_of

        return reward_of(self.users(t), ranking)

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists (count, n_positions)."""
        from .users import rewards_of

        return rewards_of(self.users(t), rankings)


class PeriodicLists(ListWorld):
    """Several list worlds that alternate: each lasts ``phase`` rounds, and after the last comes the first again.

    The worlds themselves do not change.
    """

    def __init__(self, worlds: Sequence[ListWorld], phase: int) -> None:
        self.worlds, self.phase = tuple(worlds), whole(phase, "phase", 1)
        shapes = {(world.n_items, world.n_positions) for world in self.worlds}
        if len(shapes) != 1:
            raise ValueError(f"worlds must have one shape; got {sorted(shapes)}")
        if any(world.first_change() is not None for world in self.worlds):
            raise ValueError("worlds that alternate must not change by themselves")

    @property
    def n_items(self) -> int:
        """The number of items to choose from."""
        return self.worlds[0].n_items

    @property
    def n_positions(self) -> int:
        """The number of positions to fill."""
        return self.worlds[0].n_positions

    def _at(self, t: int) -> ListWorld:
        return self.worlds[t // self.phase % len(self.worlds)]

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        """Draw the clicks (n_positions,) on a list in round t."""
        return self._at(t).click(t, ranking, rng)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list in round t."""
        return self._at(t).expected_reward(t, ranking)

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists in round t."""
        return self._at(t).expected_rewards(t, rankings)

    def best_list(self, t: int) -> BestList:
        """Return the best list of the world of round t."""
        return self._at(t).best_list(t)

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users of round t; None if one of the worlds is in plain Python."""
        everywhere = [world.users(t, labels) for world in self.worlds]
        return None if any(users is None for users in everywhere) else everywhere[self.worlds.index(self._at(t))]

    def spans(self, start: int, stop: int) -> Iterator[int]:
        """Yield the end of each phase."""
        while start < stop:
            start = min(stop, (start // self.phase + 1) * self.phase)
            yield start

    def first_round_like(self, t: int) -> int:
        """Return the first round of the world of round t."""
        return self.worlds.index(self._at(t)) * self.phase

    def first_change(self) -> int | None:
        """The first round of a world other than the first one; None if all are the same object."""
        others = [k for k, world in enumerate(self.worlds) if world is not self.worlds[0]]
        return others[0] * self.phase if others else None

    def numbers(self) -> dict[str, Any]:
        """The phase, and the descriptions of the worlds."""
        return {"kind": "periodic", "phase": self.phase, "worlds": [world.description() for world in self.worlds]}


class RelabelledLists(ListWorld):
    """A list world with its items in another order: item ``labels[i]`` of the given world is item i here."""

    def __init__(self, world: ListWorld, labels: NDArray[np.int64]) -> None:
        self._world, self._labels, self.name = world, np.array(labels), world.name

    @property
    def n_items(self) -> int:
        """The number of items to choose from."""
        return self._world.n_items

    @property
    def n_positions(self) -> int:
        """The number of positions to fill."""
        return self._world.n_positions

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        """Draw the clicks (n_positions,) on a list in round t."""
        return self._world.click(t, self._labels[ranking], rng)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list in round t."""
        return self._world.expected_reward(t, self._labels[ranking])

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists in round t."""
        return self._world.expected_rewards(t, self._labels[rankings])

    def best_list(self, t: int) -> BestList:
        """Return the best list of the given world, with the labels of this one."""
        best = self._world.best_list(t)
        return best._replace(ranking=np.argsort(self._labels)[best.ranking])

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users of round t for compiled loops."""
        return self._world.users(t, self._labels if labels is None else self._labels[labels])

    def spans(self, start: int, stop: int) -> Iterator[int]:
        """The parts of the given world."""
        return self._world.spans(start, stop)

    def first_round_like(self, t: int) -> int:
        """The first round of the given world with these users."""
        return self._world.first_round_like(t)

    def first_change(self) -> int | None:
        """The first change of the given world."""
        return self._world.first_change()

    def numbers(self) -> dict[str, Any]:
        """The labels (n_items,), and the description of the given world."""
        return {"kind": "relabelled", "labels": self._labels.tolist(), "world": self._world.description()}
