"""Playing many games with nothing lost: every (policy, world, replication) that is finished stays finished.

A finished cell is a small file, named by a digest of all that determines what is in it: the policy and its settings,
the world, the rounds, the seed, the replication, and the sources of every room that has a say. Edit a policy, and its
cells are played again; interrupt a run, and it goes on where it was.
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
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.comparators import best_in_hindsight
from ..arena.loop import Meeting, checkpoint_rounds, collecting, compile_ahead, cores, warn_of_no_change
from ..core import save_arrays
from ..progress import progress_bar
from ..worlds import World
from .base import Game

__all__ = ["play_all"]

CHECKPOINTS = 100  # evenly spaced, and half as many in proportion, for logarithmic axes
# The rooms that decide what a policy earns; how it is drawn or served does not.
ROOMS = ("core.py", "kernels.py", "geometry", "statistics", "worlds", "policies", "arena/loop.py")


class Cell(NamedTuple):
    """One replication of one game."""

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
    """Play every game that is not yet finished in the folder, and return the results of all of them.

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
    meetings = [Meeting(game.policy, game.world, game.rounds, shuffle=True, tell=True) for game in games]
    marks = [_marks(game.rounds) for game in games]
    cells = [
        Cell(g, k, folder / f"{_key(games[g], meetings[g], seed, k)}.npz")
        for g, game in enumerate(games)
        for k in range(game.seeds)
    ]
    # One replication of everything first: while one policy is compiled, another one plays.
    todo = sorted((cell for cell in cells if not cell.path.exists()), key=lambda cell: cell.replication)
    stopped = threading.Event()

    def play(cell: Cell, report: Any) -> None:
        def counted(rounds: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            report(rounds)

        score = meetings[cell.game].replicate(marks[cell.game], seed, cell.replication, counted)
        arrays = {"reward": score.reward, "clicks": score.clicks, "seconds": np.array(score.seconds)}
        save_arrays(cell.path, arrays)

    compile_ahead(list({type(games[cell.game].policy): meetings[cell.game] for cell in todo}.values()), jobs, progress)
    total = sum(games[cell.game].rounds for cell in todo)
    with (
        progress_bar(f"{len(todo)} of {len(cells)} cells", total, progress) as report,
        collecting(ThreadPoolExecutor(jobs or cores()), stopped.set) as pool,
    ):
        list(pool.map(lambda cell: play(cell, report), todo))
    return _assemble(games, meetings, marks, cells, seed)


def _marks(rounds: int) -> NDArray[np.int64]:
    even = checkpoint_rounds(CHECKPOINTS, rounds)
    in_proportion = np.geomspace(min(10, rounds), rounds, CHECKPOINTS // 2).round().astype(np.int64)
    return np.unique(np.concatenate([even, in_proportion]))


def _assemble(
    games: Sequence[Game],
    meetings: Sequence[Meeting],
    marks: Sequence[NDArray[np.int64]],
    cells: Sequence[Cell],
    seed: int,
) -> list[Result]:
    best: dict[tuple[str, int], Any] = {}
    results = []
    for g, (game, meeting) in enumerate(zip(games, meetings)):
        scores = [_load(cell.path) for cell in cells if cell.game == g]
        place = (game.world.name, game.rounds)
        if place not in best:
            best[place] = best_in_hindsight(game.world, marks[g])
        results.append(
            Result(
                policy=meeting.policy_name,
                world=game.world.name,
                settings=meeting.settings,
                seed=seed,
                rounds=marks[g],
                reward=np.array([score["reward"] for score in scores]),
                clicks=np.array([score["clicks"] for score in scores]),
                best_fixed=best[place][0],
                best_dynamic=best[place][1],
                seconds=float(sum(score["seconds"] for score in scores)),
                adaptive=meeting.policy.adaptive,
                first_change=game.world.first_change(),
            )
        )
    return results


def _key(game: Game, meeting: Meeting, seed: int, replication: int) -> str:
    if not game.world.name:
        raise ValueError(f"a world needs a name before its results can be kept; {game.world!r} has none")
    parts = {
        "policy": f"{type(game.policy).__module__}.{type(game.policy).__qualname__}",
        "settings": meeting.settings,
        "world": _users(game.world, game.rounds),
        "checkpoints": _marks(game.rounds).tolist(),
        "versions": [numba.__version__, np.__version__],
        "seed": seed,
        "replication": replication,
        "sources": _sources(type(game.policy)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:32]


def _users(world: World, rounds: int) -> str:
    """Identify a world by its users in every round: two may share a name and differ."""
    key = (id(world), rounds)
    if key not in _known_users:
        digest = hashlib.sha256()
        for end, probabilities in world.pieces(0, rounds):
            digest.update(f"{end}:{probabilities.shape}".encode() + probabilities.tobytes())
        _known_users[key] = (world, digest.hexdigest())
    return _known_users[key][1]


_known_users: dict[tuple[int, int], tuple[World, str]] = {}  # a world that is kept keeps its id


@cache
def _sources(policy: type) -> str:
    package = Path(__file__).parents[1]
    files = {Path(inspect.getfile(policy))}
    for room in ROOMS:
        files |= {package / room} if room.endswith(".py") else set((package / room).glob("*.py"))
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> dict[str, NDArray[np.float64]]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
