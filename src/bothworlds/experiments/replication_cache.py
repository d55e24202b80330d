"""Play many games with a cache on disk: a replication that is finished is never played again.

A cached replication is a small file, named by a digest of everything that determines its content: the policy and its
settings, the users of the world, the rounds, the seed, the number of the replication, and the source files of the rooms
that take part. After an edit of a policy its replications are played again; an interrupted run continues where it
stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.attack_scores import attack_scores
from ..arena.comparators import Comparators, comparators
from ..arena.loop import Simulation, users_class
from ..arena.parallel import closing_pool, compile_ahead, cores
from ..arena.play import checkpoint_rounds, warn_of_no_change
from ..core import save_arrays
from ..progress import ReportProgress, progress_bar
from ..worlds import Attacked, ListWorld, World
from .question import Game

__all__ = ["game_checkpoints", "play_all"]

CHECKPOINTS = 100  # evenly spaced; half as many more are spaced logarithmically
# The sources that determine rewards. Those that draw or serve do not.
SOURCES = ("core.py", "kernels.py", "geometry", "statistics", "worlds", "policies", "arena/loop.py")


class CachedReplication(NamedTuple):
    """One replication of one game, and its file in the cache."""

    game: int
    replication: int
    path: Path


def play_all(
    games: Sequence[Game],
    folder: str | Path,
    *,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Play all replications that are not in the folder yet, and return the results of all games, in order.

    ``jobs`` replications run at a time, each in a thread; all cores if not given. A finished replication is on disk
    before the next one starts in its thread, so nothing finished is lost when the run is interrupted. The folder is
    created. Policies get what they need to know of their world. An UnchangedWorldWarning is issued for a world that
    changes, but not within its rounds. Raises ValueError for a world without a name.

    >>> import tempfile, bothworlds
    >>> game = Game(bothworlds.policy("uniform"), bothworlds.world("paper/stochastic"), 100, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = play_all([game], folder), play_all([game], folder)
    >>> bool((first[0].reward == again[0].reward).all())
    True
    """
    warn_of_no_change((game.world, game.rounds) for game in games)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    simulations = [Simulation(game.policy, game.world, game.rounds, shuffle=True, tell=True) for game in games]
    marks = [game_checkpoints(game.rounds) for game in games]
    replications = [
        CachedReplication(g, k, folder / f"{_key(games[g], simulations[g], seed, k)}.npz")
        for g, game in enumerate(games)
        for k in range(game.seeds)
    ]
    # The first replication of every game comes first: while one policy is compiled, another one plays.
    todo = sorted((one for one in replications if not one.path.exists()), key=lambda one: one.replication)
    stopped = threading.Event()

    def play(one: CachedReplication, report: ReportProgress) -> None:
        def report_unless_stopped(rounds: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            report(rounds)

        score = simulations[one.game].replicate(marks[one.game], seed, one.replication, report_unless_stopped)
        arrays = {"reward": score.reward, "clicks": score.clicks, "seconds": np.array(score.seconds)}
        save_arrays(one.path, arrays if score.attack is None else arrays | {"attack": score.attack})

    loops = {(type(games[one.game].policy), users_class(games[one.game].world)): simulations[one.game] for one in todo}
    compile_ahead(list(loops.values()), jobs, progress)
    total = sum(games[one.game].rounds for one in todo)
    with (
        progress_bar(f"{len(todo)} of {len(replications)} replications", total, progress) as report,
        closing_pool(ThreadPoolExecutor(jobs or cores()), stopped.set) as pool,
    ):
        list(pool.map(lambda one: play(one, report), todo))
    return _assemble(games, simulations, marks, replications, seed)


def game_checkpoints(rounds: int) -> NDArray[np.int64]:
    """Return the rounds at which rewards are recorded: evenly spaced, and logarithmically spaced ones in addition."""
    even = checkpoint_rounds(CHECKPOINTS, rounds)
    logarithmic = np.geomspace(min(10, rounds), rounds, CHECKPOINTS // 2).round().astype(np.int64)
    return np.unique(np.concatenate([even, logarithmic]))


def _assemble(
    games: Sequence[Game],
    simulations: Sequence[Simulation],
    marks: Sequence[NDArray[np.int64]],
    replications: Sequence[CachedReplication],
    seed: int,
) -> list[Result]:
    """Read all replications from the cache and return the result of every game."""
    best: dict[tuple[str, int], Comparators] = {}
    results = []
    for g, (game, simulation) in enumerate(zip(games, simulations)):
        scores = [_read(one.path) for one in replications if one.game == g]
        key = (_users_digest(game.world, game.rounds), game.rounds)
        if key not in best:
            best[key] = comparators(game.world, marks[g])
        results.append(
            Result(
                policy=simulation.label,
                world=game.world.name,
                settings=simulation.settings,
                seed=seed,
                rounds=marks[g],
                reward=np.array([score["reward"] for score in scores]),
                clicks=np.array([score["clicks"] for score in scores]),
                best_fixed=best[key].fixed,
                best_dynamic=best[key].dynamic,
                seconds=float(sum(score["seconds"] for score in scores)),
                adaptive=simulation.policy.adaptive,
                first_change=game.world.first_change(),
                policy_name=simulation.policy_name,
                world_description=game.world.description(),
                comparators=best[key].methods,
                attack=attack_scores(marks[g], [score.get("attack") for score in scores]),
            )
        )
    return results


def _key(game: Game, simulation: Simulation, seed: int, replication: int) -> str:
    """The name of a replication's file, without its ending."""
    if not game.world.name:
        raise ValueError(f"a world needs a name before its results can be cached; {game.world!r} has none")
    parts = {
        "policy": f"{type(game.policy).__module__}.{type(game.policy).__qualname__}",
        "settings": simulation.settings,
        "world": _users_digest(game.world, game.rounds),
        "checkpoints": game_checkpoints(game.rounds).tolist(),
        "versions": [numba.__version__, np.__version__],
        "seed": seed,
        "replication": replication,
        "sources": _sources_digest(type(game.policy)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:32]


def _users_digest(world: World, rounds: int) -> str:
    """A digest of the users in every round: two worlds may share a name and differ."""
    key = (id(world), rounds)
    if key not in _users_digests:
        digest = hashlib.sha256()
        if isinstance(world, (Attacked, ListWorld)):
            digest.update(json.dumps(world.description(), sort_keys=True).encode())
        else:
            for end, probabilities in world.pieces(0, rounds):
                digest.update(f"{end}:{probabilities.shape}".encode() + probabilities.tobytes())
        _users_digests[key] = (world, digest.hexdigest())
    return _users_digests[key][1]


_users_digests: dict[tuple[int, int], tuple[World, str]] = {}  # holds the world, so that no other gets its id


@cache
def _sources_digest(policy: type) -> str:
    """A digest of all source files that determine what a policy earns."""
    package = Path(__file__).parents[1]
    files = {Path(inspect.getfile(policy))}
    for source in SOURCES:
        files |= {package / source} if source.endswith(".py") else set((package / source).rglob("*.py"))
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> dict[str, NDArray[np.float64]]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
