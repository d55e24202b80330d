"""The best list of every round, computed from the world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from ..worlds import World
from ..worlds import resolve as resolve_world
from .base import CompiledPolicy
from .parts.settings import whole

DEFAULT_HORIZON = 100_000


class State(NamedTuple):
    shape: Shape
    rankings: Ints  # (changes, n_positions) the best lists, in the order of rounds
    ends: Ints  # (changes,) the round after the last one of each list
    rounds: Ints  # (1,) rounds learned from
    current: Ints  # (1,) index of the present list


@dataclass(frozen=True)
class Oracle(CompiledPolicy):
    r"""Shows the best list of every round, because it knows the world.

    An upper bound for every policy: the difference is the price of learning. It reads the click probabilities of each
    round from the world and solves the assignment of items to positions. In a world that changes, the difference
    includes the cost of changes that no policy can foresee.

    .. math:: X_t = \arg\max_X \sum_{ij} p_t(i, j) \, X_{ij}

    Requires: the world.
    Guarantee: no regret at all, against the best list of every round, where the best list is known exactly.
    Known failure: it works in simulations only; with lost or late feedback it shows lists of earlier rounds.

    Parameters
    ----------
    world
        The world, or its name; a simulation by ``bothworlds arena`` fills it in.
    horizon
        Number of rounds for which best lists are computed; ``play`` fills it in, 100,000 otherwise.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("paper/periodic-both", phase=500)
    >>> result = bothworlds.play(bothworlds.policy("oracle", world=world), world, 2_000, replications=2)
    >>> bool(abs(result.regret("dynamic")).max() < 1e-6)
    True
    """

    world: str | World | None = None
    horizon: int | None = whole(None, 1, 10**9)

    name = "oracle"
    adaptive = False
    needs = ("world",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.world, str):
            resolve_world(self.world)

    def start(self, shape: Shape) -> State:
        assert self.world is not None  # see ``check_needs``
        world = resolve_world(self.world)
        if (world.n_items, world.n_positions) != tuple(shape):
            raise ValueError(
                f"oracle knows {world!r}, which does not have {shape.n_items} items and {shape.n_positions} positions"
            )
        ends, rankings = _best_lists(world, self.horizon or DEFAULT_HORIZON)
        return State(shape, rankings, ends, np.zeros(1, np.int64), np.zeros(1, np.int64))

    def relabelled(self, labels: NDArray[np.int64]) -> Oracle:
        """Return the oracle of the same world, for items in another order."""
        return self if self.world is None else replace(self, world=resolve_world(self.world).relabelled(labels))

    def settings(self) -> dict[str, Any]:
        """Return the settings by name; a world is represented by its name."""
        world = self.world if self.world is None or isinstance(self.world, str) else self.world.name
        return super().settings() | {"world": world}


def _best_lists(world: World, rounds: int) -> tuple[Ints, Ints]:
    """Return the rounds at which the best list of the users changes, and the best lists."""
    world, start, known = world.honest, 0, dict[int, Ints]()
    ends: list[int] = []
    rankings: list[Ints] = []
    for end in world.spans(0, rounds):
        alike = world.first_round_like(start)
        if alike not in known:
            known[alike] = world.best_list(alike).ranking
        if rankings and np.array_equal(known[alike], rankings[-1]):
            ends[-1] = end
        else:
            ends.append(end)
            rankings.append(known[alike])
        start = end
    return np.array(ends), np.array(rankings)


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    for j in range(ranking.size):
        ranking[j] = state.rankings[state.current[0], j]
        propensity[j] = 1.0


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    current = state.current
    state.rounds[0] += 1
    if state.rounds[0] >= state.ends[current[0]] and current[0] + 1 < state.ends.size:
        current[0] += 1
