"""Play many policies in many worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..progress import progress_bar
from ..worlds import World
from ..worlds import resolve as resolve_world
from .loop import Simulation, users_class
from .parallel import compile_ahead
from .play import RunSettings, run, warn_of_no_change
from .result import Result

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
    results = []
    players = [resolve_policy(policy) for policy in policies]
    places = [resolve_world(world) for world in worlds]
    settings = RunSettings.checked(rounds, seeds, seed, checkpoints, jobs)
    warn_of_no_change((world, settings.rounds) for world in places)
    # The compiled loop of a policy is the same in all worlds with users of one class: one of these worlds is enough.
    first = {users_class(world): world for world in reversed(places)}
    ahead = [Simulation(policy, world, rounds, True, tell) for world in first.values() for policy in players]
    compile_ahead(ahead, jobs, progress)
    pairs = [
        (policy, world)
        for world in places
        for policy in players
        if not (tell and _lacks_examination(policy, rounds, world))
    ]
    title = f"{len(pairs)} games" if len(pairs) > 1 else "one game"
    with progress_bar(title, rounds * len(settings.replications) * len(pairs), progress) as report:
        for policy, world in pairs:
            result = run(Simulation(policy, world, rounds, True, tell), settings, report)
            results.append(result)
            if finished is not None:
                finished(result)
    return results


def _lacks_examination(policy: Policy, rounds: int, world: World) -> bool:
    """Whether a policy needs the examination of positions, and the world has none."""
    return getattr(configured_for(policy, rounds, world), "examination", ()) is None
