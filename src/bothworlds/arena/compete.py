"""Play many policies in many worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from .cells import ScoredGame
from .loop import Simulation
from .play import RunSettings, warn_of_no_change
from .result import Result
from .sweep import engine_named, play_games

__all__ = ["compete"]


def compete(
    policies: Sequence[str | Policy],
    worlds: Sequence[str | World],
    rounds: int,
    *,
    seeds: int = 10,
    seed: int = 0,
    checkpoints: int = 100,
    jobs: int | None = None,
    tell: bool = False,
    engine: str = "local",
    address: str | None = None,
    cells: str | Path | None = None,
    progress: bool | None = None,
    finished: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Play every policy in every world with the same users, and return the results, worlds first.

    ``finished`` is called with each result as soon as it is there, in this thread. With ``tell`` policies get what they
    need to know of the world; a policy that needs the examination of positions is left out of a world that has none. An
    UnchangedWorldWarning is issued for a world that changes, but not within ``rounds`` rounds. The other arguments are
    those of :func:`play`, and so are the exceptions.

    >>> results = compete(["uniform", "ftrl-pbm"], ["paper/stochastic"], rounds=500, seeds=2)
    >>> [result.policy for result in results]
    ['uniform', 'ftrl-pbm']
    """
    players = [resolve_policy(policy) for policy in policies]
    places = [resolve_world(world) for world in worlds]
    settings = RunSettings.checked(rounds, seeds, seed, checkpoints, jobs)
    games = [
        ScoredGame(Simulation(policy, world, settings.rounds, True, tell), settings.marks, settings.seeds)
        for world in places
        for policy in players
        if not (tell and _lacks_examination(policy, rounds, world))
    ]
    warn_of_no_change(games)
    chosen = engine_named(engine, address, settings.jobs)
    return play_games(games, settings.seed, chosen, cells=cells, progress=progress, finished=finished)


def _lacks_examination(policy: Policy, rounds: int, world: World) -> bool:
    """Whether a policy needs the examination of positions, and the world has none."""
    return getattr(configured_for(policy, rounds, world), "examination", ()) is None
