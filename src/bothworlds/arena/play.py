"""Play a policy in a world, or several in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..worlds import World
from ..worlds import resolve as resolve_world
from .game import Game, warn_of_no_change
from .result import Result
from .run import engine_named, run


def play(
    policy: str | Policy,
    world: str | World,
    rounds: int,
    *,
    replications: int = 10,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 100,
    jobs: int | None = None,
    shuffle: bool = True,
    inform: bool = False,
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
    replications
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
    inform
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

    Returns cumulative rewards and clicks at the checkpoints, and the rewards of the best rankings. Issues an
    UnchangedWorldWarning if the world changes, but not within ``rounds`` rounds. Raises ValueError if an argument is
    out of range or the policy cannot play in this world, and ImportError if Ray is requested and not installed.

    Examples
    --------
    >>> result = play("ftrl-pbm", "paper/stochastic", rounds=2_000, replications=3, checkpoints=4)
    >>> result.rounds
    array([ 500, 1000, 1500, 2000])
    >>> result.reward.shape
    (3, 4)
    >>> again = play("ftrl-pbm", "paper/stochastic", rounds=2_000, replications=3, checkpoints=4, jobs=1)
    >>> bool((again.reward == result.reward).all())
    True
    """
    game = Game.of(policy, world, rounds, replications, seed, checkpoints, shuffle, inform)
    warn_of_no_change([game])
    return run([game], engine_named(engine, address, jobs), cells=cells, progress=progress)[0]


def compete(
    policies: Sequence[str | Policy],
    worlds: Sequence[str | World],
    rounds: int,
    *,
    replications: int = 10,
    seed: int = 0,
    checkpoints: int = 100,
    jobs: int | None = None,
    inform: bool = False,
    engine: str = "local",
    address: str | None = None,
    cells: str | Path | None = None,
    progress: bool | None = None,
    finished: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Play every policy in every world with the same users, and return the results, worlds first.

    ``finished`` is called with each result as soon as it is there, in this thread. With ``inform`` policies get what
    they need to know of the world; a policy that needs the examination of positions is left out of a world that has
    none. An UnchangedWorldWarning is issued for a world that changes, but not within ``rounds`` rounds. The other
    arguments are those of :func:`play`, and so are the exceptions.

    >>> results = compete(["uniform", "ftrl-pbm"], ["paper/stochastic"], rounds=500, replications=2)
    >>> [result.policy for result in results]
    ['uniform', 'ftrl-pbm']
    """
    players, places = [resolve_policy(policy) for policy in policies], [resolve_world(world) for world in worlds]
    games = [
        Game.of(policy, world, rounds, replications, seed, checkpoints, inform=inform)
        for world in places
        for policy in players
        if not inform or getattr(configured_for(policy, rounds, world), "examination", ()) is not None
    ]
    warn_of_no_change(games)
    return run(games, engine_named(engine, address, jobs), cells=cells, progress=progress, finished=finished)
