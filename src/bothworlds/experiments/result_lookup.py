"""Lookup of results by policy and world: by settings and description, not by the names in tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.game import Game
from ..policies import Policy
from ..worlds import World
from .verdict import Contrast

#: Registered name and settings of the policy, description of the world (both as JSON), and rounds.
GameKey = tuple[str, str, str, int]


def game_key(policy: Policy, world: World, rounds: int) -> GameKey:
    """Return what identifies a game: two games with the same key and seed have the same results."""
    game = Game.of(policy, world, rounds, checkpoints=1, inform=True)
    return game.policy_name, _json(game.settings), _json(world.description()), rounds


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _played_by(policy: Policy, result: Result, world: str | World) -> bool:
    """Whether a result is that of a policy, with what the policy needs to know of the world."""
    played = result.build_world() if isinstance(world, str) else world
    return game_key(policy, played, int(result.rounds[-1]))[:2] == (result.policy_name, _json(result.settings))


class Results:
    """The results of many games, looked up by policy and world, and comparisons of policies.

    A policy or a world given as an object selects the results of the same policy (name and settings) in the same world
    (description), whatever names these have in tables. A string selects the results with exactly that name.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self.all = list(results)

    def of_length(self, rounds: int) -> Results:
        """Return the results of all games of that many rounds."""
        return Results([result for result in self.all if result.rounds[-1] == rounds])

    def first_replications(self, replications: int) -> Results:
        """Return the same results with at most so many replications each, the first ones."""
        first = slice(replications)
        return Results([replace(r, reward=r.reward[first], clicks=r.clicks[first]) for r in self.all])

    def __getitem__(self, key: tuple[str | Policy, str | World]) -> Result:
        """Return the result of a policy in a world.

        Raises KeyError if there is none, or if there are several: ``of_length`` selects those of one length.
        """
        matching = self._find(*key)
        if len(matching) != 1:
            policy, world = key
            lengths = [int(result.rounds[-1]) for result in matching]
            raise KeyError(f"there are {len(matching)} results of {policy!r} in {world!r}; their rounds are {lengths}")
        return matching[0]

    def _find(self, policy: str | Policy, world: str | World) -> list[Result]:
        if isinstance(world, str):
            here = [result for result in self.all if result.world == world]
        else:
            description = _json(world.description())
            here = [result for result in self.all if _json(result.world_description) == description]
        if isinstance(policy, str):
            return [result for result in here if result.policy == policy]
        return [result for result in here if _played_by(policy, result, world)]

    def of(self, policies: Sequence[str | Policy], worlds: Sequence[str | World]) -> list[Result]:
        """Return the results of some policies in some worlds, worlds first; those that do not exist are left out."""
        return [result for world in worlds for policy in policies for result in self._find(policy, world)]

    def earned(self, policy: str | Policy, world: str | World) -> NDArray[np.float64]:
        """Return the final average reward per round of every replication, (replications,)."""
        values: NDArray[np.float64] = self[policy, world].average_reward()[:, -1]
        return values

    def ahead(self, policy: str | Policy, other: str | Policy, world: str | World) -> Contrast:
        """Return by how much a policy earns more per round than another, from all replications of both.

        Replications are not paired: the users are the same, but other lists are shown to them, and the rewards of two
        policies in one replication are hardly correlated.
        """
        return Contrast.of(self.earned(policy, world)) - Contrast.of(self.earned(other, world))
