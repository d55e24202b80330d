"""Run games: play their replications with any engine, keep them in a cache, and put the results together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ..checks import whole
from ..progress import progress_bar
from .comparators import Comparators, comparators
from .game import Game
from .loop import Score
from .parallel import Cell, LocalEngine, ReportRounds
from .ray_engine import RayEngine
from .replication_cache import ReplicationCache, UsersDigest
from .result import Result, attack_scores

NAMED_FAILURES = 5  # failed cells that an error names
INTERPRETED = 30  # compiled rounds that take about as long as one in plain Python


class Engine(Protocol):
    """Plays cells, several at a time."""

    def prepare(self, games: Sequence[Game], progress: bool | None) -> None:
        """Do what has to be done once before the games, such as compiling; called before there is a progress bar."""

    def play(
        self, games: Sequence[Game], cells: Sequence[Cell], report: ReportRounds
    ) -> Iterator[tuple[Cell, Score | Exception]]:
        """Play the cells and yield each with its score, or with the exception that it raised, when it has ended.

        The cells are started in the given order. If ``report`` raises, nothing more is started, and the exception is
        passed on.
        """


def engine_named(name: str, address: str | None = None, jobs: int | None = None) -> Engine:
    """Return the engine ``"local"`` or ``"ray"``. Raises ValueError for other arguments."""
    jobs = None if jobs is None else whole(jobs, "jobs", 1)
    if name == "ray":
        return RayEngine(address, jobs)
    if name != "local":
        raise ValueError(f"engine must be 'local' or 'ray'; got {name!r}")
    if address is not None:
        raise ValueError(f"address {address!r} is the address of a Ray cluster; it needs engine 'ray'")
    return LocalEngine(jobs)


def run(
    games: Sequence[Game],
    engine: Engine | None = None,
    *,
    cells: str | Path | None = None,
    progress: bool | None = None,
    finished: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Play all replications of all games and return the results in the order of the games.

    ``cells`` is a folder for finished replications: those in it are not played again, and an interrupted sweep
    continues where it stopped. ``finished`` is called with each result as soon as it is complete, in this thread.

    An exception of a cell is raised with a note that names the cell. With a folder it is raised after all others have
    been played, so that they are kept; without one, at once.
    """
    engine, digest = engine or LocalEngine(), UsersDigest()
    cache, compare = None if cells is None else ReplicationCache(cells, digest), _ComparatorCache(digest)
    everything = [Cell(g, k) for g, game in enumerate(games) for k in range(game.replications)]
    scores: dict[Cell, Score] = {}
    if cache is not None:
        for cell in everything:
            cached = cache.read(games[cell.game], cell.replication)
            if cached is not None:
                scores[cell] = cached
    # The first replication of every game comes first: while one policy is compiled, another one plays.
    todo = sorted((cell for cell in everything if cell not in scores), key=lambda cell: (cell.replication > 0, cell))
    results: dict[int, Result] = {}
    failures: dict[Cell, Exception] = {}
    left = Counter(cell.game for cell in todo)

    def complete(g: int) -> None:
        own = [scores[Cell(g, k)] for k in range(games[g].replications)]
        results[g] = _result(games[g], own, compare)
        if finished is not None:
            finished(results[g])

    for g in range(len(games)):
        if not left[g]:
            complete(g)
    engine.prepare([games[g] for g in sorted(left)], progress)
    work = {g: _work_per_round(games[g]) for g in left}
    total = sum(work[cell.game] * games[cell.game].rounds for cell in todo)
    title = f"playing {len(games)} games" if len(todo) == len(everything) else f"playing {len(todo)} replications"
    with progress_bar(games[0].title if len(games) == 1 else title, total, progress) as report:
        for cell, outcome in engine.play(games, todo, lambda g, rounds: report(work[g] * rounds)):
            game = games[cell.game]
            if isinstance(outcome, Exception):
                if cache is None:
                    outcome.add_note(f"in {_name(game, cell)}")
                    raise outcome
                failures[cell] = outcome
                continue
            if cache is not None:
                cache.write(game, cell.replication, outcome)
            scores[cell] = outcome
            left[cell.game] -= 1
            if not left[cell.game]:
                complete(cell.game)
    if failures:
        _raise(failures, games, len(scores), cells)
    return [results[g] for g in range(len(games))]


def _work_per_round(game: Game) -> int:
    """Return how long a round takes, in compiled rounds: otherwise the estimated time left would be far off."""
    try:
        return 1 if game.compiled() else INTERPRETED
    except Exception:  # raised again when it is played
        return 1


def _name(game: Game, cell: Cell) -> str:
    return f"replication {cell.replication} of {game.title}"


def _raise(failures: dict[Cell, Exception], games: Sequence[Game], kept: int, cells: str | Path | None) -> None:
    """Raise the exception of the first failed cell; notes name the failed cells and say what is kept."""
    first = min(failures)
    error = failures[first]
    for cell in sorted(failures)[:NAMED_FAILURES]:
        error.add_note(f"in {_name(games[cell.game], cell)}: {failures[cell]}")
    if len(failures) > NAMED_FAILURES:
        error.add_note(f"and in {len(failures) - NAMED_FAILURES} more replications")
    error.add_note(f"{kept} other replications are finished and kept in {cells}")
    raise error


class _ComparatorCache:
    """The rewards of the best rankings, computed once for all games with the same users and checkpoints."""

    def __init__(self, users_digest: UsersDigest) -> None:
        self._users_digest = users_digest
        self._known: dict[tuple[str, bytes], Comparators] = {}

    def __call__(self, game: Game) -> Comparators:
        key = (self._users_digest(game.world, game.rounds), game.marks.tobytes())
        if key not in self._known:
            self._known[key] = comparators(game.world, game.marks)
        return self._known[key]


def _result(game: Game, scores: Sequence[Score], compare: _ComparatorCache) -> Result:
    best = compare(game)
    return Result(
        policy=game.label,
        world=game.world_name,
        settings=game.settings,
        seed=game.seed,
        rounds=game.marks,
        reward=np.array([score.reward for score in scores]),
        clicks=np.array([score.clicks for score in scores]),
        best_fixed=best.fixed,
        best_dynamic=best.dynamic,
        seconds=sum(score.seconds for score in scores),
        adaptive=getattr(game.policy, "adaptive", True),
        first_change=game.world.first_change(),
        policy_name=game.policy_name,
        world_description=game.world.description(),
        comparators=best.methods,
        attack=attack_scores(game.marks, [score.attack for score in scores]),
    )
