"""Play a policy in a world: arguments and their checks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..policies import Policy
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from .cells import ScoredGame
from .loop import Simulation
from .result import Result, UnchangedWorldWarning, no_change
from .sweep import engine_named, play_games

__all__ = ["RunSettings", "checkpoint_rounds", "play", "warn_of_no_change"]


def play(
    policy: str | Policy,
    world: str | World,
    rounds: int,
    *,
    seeds: int = 10,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 100,
    jobs: int | None = None,
    shuffle: bool = True,
    tell: bool = False,
    engine: str = "local",
    address: str | None = None,
    cells: str | Path | None = None,
    progress: bool | None = None,
) -> Result:
    """Play a policy in a world for ``rounds`` rounds, in several replications, and return its rewards.

    Each replication has its own users, its own random order of item labels and its own randomness for the policy. All
    of them are determined by ``seed`` and the number of the replication: every policy meets the same users, and the
    result does not depend on ``jobs``.

    Parameters
    ----------
    policy, world
        Names, or objects.
    rounds
        The number of rounds; also the horizon of a policy whose setting ``horizon`` is None.
    seeds
        The number of replications.
    seed
        The seed of all randomness.
    checkpoints
        The number of evenly spaced rounds at which rewards are recorded, or a list of these rounds.
    jobs
        The number of replications that run at a time; all cores if not given. Compiled policies run in threads,
        others in this process and in others beside it, if they can be pickled.
    shuffle
        Whether item labels are shuffled in each replication. Without it, a policy that breaks ties by label profits
        from a world that lists its items in the best order.
    tell
        Whether the policy gets what it needs to know of the world where its settings leave it open: the examination
        (that of round 0), or the world itself.
    engine
        ``"local"``, the cores of this machine, or ``"ray"``, a Ray cluster. The result is the same.
    address
        The address of the Ray cluster. If not given: the cluster that this process is connected to, or that of the
        environment variable ``RAY_ADDRESS``, or a temporary one on this machine.
    cells
        A folder for finished replications. Those in it are not played again: an interrupted run continues where it
        stopped, with any engine.
    progress
        Whether to show a progress bar. If not given, a terminal gets a bar, and other output a line on standard error
        about every half minute.

    Warns
    -----
    UnchangedWorldWarning
        If the world changes, but not within ``rounds`` rounds.

    Returns
    -------
    Result
        Cumulative rewards and clicks at the checkpoints, and the rewards of the best rankings.

    Raises
    ------
    ValueError
        If an argument is out of range, or the policy cannot play in this world.
    ImportError
        If Ray is requested and not installed.

    Examples
    --------
    >>> result = play("ftrl-pbm", "paper/stochastic", rounds=2_000, seeds=3, checkpoints=4)
    >>> result.rounds
    array([ 500, 1000, 1500, 2000])
    >>> result.reward.shape
    (3, 4)
    >>> again = play("ftrl-pbm", "paper/stochastic", rounds=2_000, seeds=3, checkpoints=4, jobs=1)
    >>> bool((again.reward == result.reward).all())
    True
    """
    settings = RunSettings.checked(rounds, seeds, seed, checkpoints, jobs)
    simulation = Simulation(resolve_policy(policy), resolve_world(world), settings.rounds, shuffle, tell)
    games = [ScoredGame(simulation, settings.marks, settings.seeds)]
    warn_of_no_change(games)
    chosen = engine_named(engine, address, settings.jobs)
    return play_games(games, settings.seed, chosen, cells=cells, progress=progress)[0]


class RunSettings(NamedTuple):
    """The checked arguments of ``play``; ``marks`` are the checkpoints."""

    rounds: int
    marks: NDArray[np.int64]
    seeds: int
    seed: int
    jobs: int | None

    @classmethod
    def checked(
        cls, rounds: int, seeds: int, seed: int, checkpoints: int | Sequence[int], jobs: int | None = None
    ) -> RunSettings:
        """Check the arguments of ``play``; raises ValueError that names the wrong one."""
        marks = checkpoint_rounds(checkpoints, _positive(rounds, "rounds"))
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0; got {seed!r}")
        jobs = None if jobs is None else _positive(jobs, "jobs")
        return cls(int(rounds), marks, _positive(seeds, "seeds"), int(seed), jobs)


def warn_of_no_change(games: Iterable[ScoredGame]) -> None:
    """Issue an UnchangedWorldWarning for every world that changes, but only after the rounds of its game.

    The warning points at the caller of the function that calls this one.
    """
    played = (game.simulation for game in games)
    sentences = (no_change(one.world_name, one.world.first_change(), one.rounds) for one in played)
    for sentence in dict.fromkeys(filter(None, sentences)):
        warnings.warn(sentence, UnchangedWorldWarning, stacklevel=3)


def checkpoint_rounds(given: int | Sequence[int], rounds: int) -> NDArray[np.int64]:
    """Return the rounds of the checkpoints, for their number or a list of them; the last round is always one.

    Raises ValueError unless they increase from at least 1 to at most ``rounds``.

    >>> checkpoint_rounds(4, 10).tolist(), checkpoint_rounds([1, 5], 10).tolist()
    ([2, 5, 8, 10], [1, 5, 10])
    """
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        count = min(_positive(int(given), "checkpoints"), rounds)
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


def _positive(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    return int(value)
