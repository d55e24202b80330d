"""Many policies in many worlds: the table of who earns what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..progress import progress_bar
from ..worlds import World
from ..worlds import resolve as resolve_world
from .loop import Meeting, Plan, compile_ahead, play_meeting, warn_of_no_change
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
    """Play every policy in every world against the same users; ``finished`` is called with each result.

    With ``tell`` policies are told what they need to know of the world. One that needs the examination of positions
    sits out a world that has none to tell. For a world that changes, but not within ``rounds`` rounds, an
    UnchangedWorldWarning is issued. The other arguments are those of :func:`play`.

    >>> results = compete(["uniform", "ftrl-pbm"], ["paper/stochastic"], rounds=500, seeds=2)
    >>> [result.policy for result in results]
    ['uniform', 'ftrl-pbm']
    """
    results = []
    players, places = [resolve_policy(policy) for policy in policies], [resolve_world(world) for world in worlds]
    plan = Plan.checked(rounds, seeds, seed, checkpoints, jobs)
    warn_of_no_change((place, plan.rounds) for place in places)
    compile_ahead([Meeting(one, place, rounds, True, tell) for place in places[:1] for one in players], jobs, progress)
    pairs = [(one, place) for place in places for one in players if not (tell and _sits_out(one, rounds, place))]
    title = f"{len(pairs)} games" if len(pairs) > 1 else "one game"
    with progress_bar(title, rounds * len(plan.replications) * len(pairs), progress) as report:
        for policy, world in pairs:
            result = play_meeting(Meeting(policy, world, rounds, True, tell), plan, report)
            results.append(result)
            if finished is not None:
                finished(result)
    return results


def _sits_out(policy: Policy, rounds: int, world: World) -> bool:
    """Whether a policy needs the examination of positions, and the world has none to tell."""
    return getattr(configured_for(policy, rounds, world), "examination", ()) is None
