"""Many policies in many worlds: the table of who earns what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..policies import Policy, told
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from .loop import play
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
    for world in map(resolve_world, worlds):
        for policy in map(resolve_policy, policies):
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
