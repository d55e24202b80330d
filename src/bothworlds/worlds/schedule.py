"""Worlds whose attraction changes by a schedule: the base of the drifting and most adversarial worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import World, check_round, first_difference, stochastic

FOREVER = 2**62  # the end of a phase that lasts for all rounds

#: Maps a count to the ends (count,) of the first phases, each the first round after it, and their attraction
#: (count, n_items).
Plan = Callable[[int], tuple[NDArray[np.int64], NDArray[np.float64]]]

INITIAL_PHASES = 64  # phases in the first plan; it is doubled when a later round is requested


class Changing(World):
    r"""The position-based model with attraction that changes from phase to phase and constant examination.

    .. math:: \Pr(\text{click on } i \text{ at } j \text{ in round } t) = \alpha_{k(t), i} \, \beta_j

    where k(t) is the phase of round t. ``plan(count)`` returns the ends of the first ``count`` phases and their
    attraction. It must be a pure function, and a longer plan must begin with the shorter one. Then rounds may be
    requested in any order and from several threads, and a random world is always the same. A plan may return fewer or
    more phases than requested if its last phase ends at FOREVER.

    Examples
    --------
    Two items whose attraction is exchanged after 10, 20, 30, ... rounds:

    >>> def plan(count):
    ...     k = np.arange(count)
    ...     return 10 * (k + 1), np.where(k[:, None] % 2, [0.1, 0.9], [0.9, 0.1])
    >>> world = Changing(plan, examination=[1.0])
    >>> [float(world.click_probabilities(t)[0, 0]) for t in (9, 10, 25)]
    [0.9, 0.1, 0.9]
    >>> list(world.spans(5, 35))
    [10, 20, 30, 35]
    """

    def __init__(self, plan: Plan, examination: ArrayLike) -> None:
        self._plan = plan
        self._phases = plan(INITIAL_PHASES)
        # Stochastic checks attraction and examination.
        self.examination = stochastic(self._phases[1][0], examination).examination
        self.n_items, self.n_positions = self._phases[1].shape[1], self.examination.size

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        check_round(t)
        probabilities = np.outer(self._phase(t)[1], self.examination)
        probabilities.setflags(write=False)
        return probabilities

    def spans(self, start: int, stop: int) -> Iterator[int]:
        while start < stop:
            start = min(self._phase(start)[0], stop)
            yield start

    def first_change(self) -> int | None:
        """The first round whose click probabilities differ from those of round 0; None if early phases are equal."""
        return first_difference(self, int(self._plan(INITIAL_PHASES)[0][-1]))

    def _phase(self, t: int) -> tuple[int, NDArray[np.float64]]:
        """Return the end of the phase of round t, and its attraction."""
        t = min(t, FOREVER - 1)
        ends, attraction = self._phases
        while t >= ends[-1]:
            ends, attraction = self._phases = self._plan(2 * len(ends))
        k = np.searchsorted(ends, t, side="right")
        return int(ends[k]), attraction[k]
