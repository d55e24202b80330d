"""Many policies in many worlds: the table of who earns what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..policies import Policy, told
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from .loop import Meeting, compile_ahead, play
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
    sits out a world that has none to tell.

    >>> results = compete(["uniform", "ftrl-pbm"], ["paper/stochastic"], rounds=500, seeds=2)
    >>> [result.policy for result in results]
    ['uniform', 'ftrl-pbm']
    """
    results = []
    players, places = [resolve_policy(policy) for policy in policies], [resolve_world(world) for world in worlds]
    compile_ahead([Meeting(player, place, rounds, True, tell) for place in places[:1] for player in players], jobs)
    for world in places:
        for policy in players:
            if tell and getattr(told(policy, rounds, world), "examination", ()) is None:
                continue
            result = play(
                policy,
                world,
                rounds,
                seeds=seeds,
                seed=seed,
                checkpoints=checkpoints,
                jobs=jobs,
                tell=tell,
                progress=progress,
            )
            results.append(result)
            if finished is not None:
                finished(result)
    return results
