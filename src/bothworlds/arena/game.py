"""A game: what is played, and how."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import whole
from ..core import streams
from ..policies import Policy, check_needs, configured_for
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from ..worlds.attacks import PlainAttack
from ..worlds.users import new_answer
from .loop import loop_classes, play_compiled, start
from .result import UnchangedWorldWarning, no_change


@dataclass(frozen=True, eq=False)
class Game:
    """A policy in a world for a number of rounds, in several replications, which may run in several threads."""

    policy: Policy  # with what it needs to know of the horizon and the world filled in
    world: World
    marks: NDArray[np.int64]  # (checkpoints,) the rounds after which it is scored; the last one is the last round
    replications: int
    seed: int
    shuffle: bool  # whether each replication has its own random order of item labels
    label: str  # of the policy in tables: its registered name, with the settings that differ from the defaults

    @classmethod
    def of(
        cls,
        policy: str | Policy,
        world: str | World,
        rounds: int,
        replications: int = 10,
        seed: int = 0,
        checkpoints: int | Sequence[int] | NDArray[np.int64] = 100,
        shuffle: bool = True,
        inform: bool = False,
    ) -> Game:
        """Return the game of the arguments of :func:`play`; raises ValueError that names the wrong one."""
        marks, given, place = checkpoint_rounds(checkpoints, whole(rounds, "rounds", 1)), resolve_policy(policy), world
        place = resolve_world(world)
        playing = configured_for(given, int(rounds), place if inform else None)
        check_needs(playing)
        label = given.label if isinstance(given, Policy) else type(given).__name__
        return cls(
            playing, place, marks, whole(replications, "replications", 1), whole(seed, "seed", 0), shuffle, label
        )

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.marks[-1])

    @property
    def policy_name(self) -> str:
        """The registered name of the policy, or the name of its class."""
        return (isinstance(self.policy, Policy) and self.policy.name) or type(self.policy).__name__

    @property
    def settings(self) -> dict[str, Any]:
        """The settings the policy plays with, those that were filled in included."""
        return self.policy.settings() if isinstance(self.policy, Policy) else {}

    @property
    def world_name(self) -> str:
        """The name of the world in results: its own, or else that of its class."""
        return self.world.name or type(self.world).__name__.lower()

    @property
    def title(self) -> str:
        """What is played, for people."""
        return f"{self.label} in {self.world.name or 'a world'}"

    def new_state(self) -> Any:
        """Return the state of the policy before the first round."""
        return start(self.policy, self.world, np.arange(self.world.n_items))

    def compiled(self) -> bool:
        """Return whether a compiled loop can play the policy in the world."""
        users, adversary = loop_classes(self.world)
        if users is type(None) or adversary is PlainAttack:
            return False
        return isinstance(self.policy, Policy) and self.policy.runs_compiled(self.new_state())

    def compile(self) -> None:
        """Compile the loop of the policy in the world, if there is one, without playing a round."""
        if self.compiled():
            labels = np.arange(self.world.n_items)
            users, adversary = self.world.users(0, labels), self.world.adversary(labels)
            to = new_answer(self.world.n_positions, adversary)
            play_compiled(self.policy, self.new_state(), 0, users, streams(0, 0), to, adversary)


def warn_of_no_change(games: Iterable[Game]) -> None:
    """Issue an UnchangedWorldWarning for every world that changes, but only after the rounds of its game.

    The warning points at the caller of the function that calls this one.
    """
    sentences = (no_change(game.world_name, game.world.first_change(), game.rounds) for game in games)
    for sentence in dict.fromkeys(filter(None, sentences)):
        warnings.warn(sentence, UnchangedWorldWarning, stacklevel=3)


def checkpoint_rounds(given: int | Sequence[int] | NDArray[np.int64], rounds: int) -> NDArray[np.int64]:
    """Return the rounds of the checkpoints, for their number or a list of them; the last round is always one.

    Raises ValueError unless they increase from at least 1 to at most ``rounds``.

    >>> checkpoint_rounds(4, 10).tolist(), checkpoint_rounds([1, 5], 10).tolist()
    ([2, 5, 8, 10], [1, 5, 10])
    """
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        count = min(whole(given, "checkpoints", 1), rounds)
        return np.round(np.arange(1, count + 1) * (rounds / count)).astype(np.int64)
    try:
        marks = np.asarray(given)
    except ValueError:
        marks = np.empty(0)
    if marks.ndim != 1 or not marks.size or marks.dtype.kind not in "iu":
        raise ValueError(f"checkpoints must be a number or a list of rounds; got {given!r}")
    if marks[0] < 1 or (np.diff(marks) < 1).any() or marks[-1] > rounds:
        raise ValueError(f"checkpoints must increase from at least 1 to at most {rounds} rounds; got {marks.tolist()}")
    return np.unique(np.append(marks, rounds)).astype(np.int64)
