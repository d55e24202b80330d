"""Worlds that change by a plan: what the worlds of drift and most of the adversarial ones are made with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import World, first_difference, stochastic

__all__ = ["FOREVER", "Changing", "Plan"]

FOREVER = 2**62  # the end of a phase that does not end

#: The ends (count,) of the first phases, each the first round after it, and the attraction (count, n_items) in them.
Plan = Callable[[int], tuple[NDArray[np.int64], NDArray[np.float64]]]

FIRST = 64  # phases that are planned at once


class Changing(World):
    r"""The position-based model with attraction that changes from phase to phase, while examination stays.

    .. math:: \Pr(\text{click on } i \text{ at } j \text{ in round } t) = \alpha_{k(t), i} \, \beta_j

    where k(t) is the phase of round t. ``plan(count)`` says when the first ``count`` phases end and what attraction is
    in each. It depends on nothing else, and a longer plan begins with the shorter one: so any round can be asked for,
    in any order, and a random world is the same whenever it is asked, by several threads at a time. A plan may also
    end with a phase that lasts FOREVER, and then have as many phases as it likes.

    Examples
    --------
    Two items whose attraction is exchanged after 10, 20, 30, ... rounds:

    >>> def plan(count):
    ...     k = np.arange(count)
    ...     return 10 * (k + 1), np.where(k[:, None] % 2, [0.1, 0.9], [0.9, 0.1])
    >>> world = Changing(plan, examination=[1.0])
    >>> [float(world.click_probabilities(t)[0, 0]) for t in (9, 10, 25)]
    [0.9, 0.1, 0.9]
    >>> [end for end, _ in world.pieces(5, 35)]
    [10, 20, 30, 35]
    """

    def __init__(self, plan: Plan, examination: ArrayLike) -> None:
        self._plan = plan
        self._phases = plan(FIRST)
        # A world that never changes knows how to check what is given.
        self.examination = stochastic(self._phases[1][0], examination).examination

    @property
    def n_items(self) -> int:
        """How many items there are to choose from."""
        return self._phases[1].shape[1]

    @property
    def n_positions(self) -> int:
        """How many positions there are to fill."""
        return self.examination.size

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        """(n_items, n_positions) probabilities of a click in round t."""
        if t < 0:
            raise ValueError(f"t must not be negative; got {t}")
        return self._phase(t)[1]

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """One piece for each phase."""
        while start < stop:
            end, probabilities = self._phase(start)
            start = min(end, stop)
            yield start, probabilities

    def first_change(self) -> int | None:
        """The first round whose click probabilities differ from those of round 0; None if early phases are equal."""
        return first_difference(self, int(self._plan(FIRST)[0][-1]))

    def _phase(self, t: int) -> tuple[int, NDArray[np.float64]]:
        """The end of the phase of round t, and its probabilities."""
        t = min(t, FOREVER - 1)
        ends, attraction = self._phases
        while t >= ends[-1]:
            ends, attraction = self._phases = self._plan(2 * len(ends))
        k = np.searchsorted(ends, t, side="right")
        probabilities = np.outer(attraction[k], self.examination)
        probabilities.setflags(write=False)
        return int(ends[k]), probabilities
