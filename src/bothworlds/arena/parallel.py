"""Replications on this machine, in several threads or processes, and compilation ahead of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..core import cores
from ..progress import ReportProgress, announce, interrupted, progress_bar
from .cells import Cell, ReportRounds, ScoredGame
from .loop import Score, Simulation, users_class
from .processes import in_processes

__all__ = ["LocalEngine", "compile_ahead", "rehearse"]

WORTH_SAYING = 1.0  # seconds of compiling; reading the cache takes less
REHEARSED = 10  # rounds


class LocalEngine:
    """Plays cells on this machine, ``jobs`` at a time: compiled policies in threads, others in processes.

    With one job, and for interpreted policies that cannot be pickled, cells are played one after the other in this
    thread.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or cores()

    def prepare(self, games: Sequence[ScoredGame], progress: bool | None) -> None:
        """Compile the loops of the games in parallel processes."""
        # The compiled loop of a policy is the same in all worlds with users of one class: one such world is enough.
        played = [game.simulation for game in games]
        loops = {(type(one.policy), users_class(one.world)): one for one in played}
        compile_ahead(list(loops.values()), self.jobs, progress)

    def play(
        self, games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, report: ReportRounds
    ) -> Iterator[tuple[Cell, Score | Exception]]:
        """Play the cells, interpreted policies first; ``report`` is called from any thread."""
        workers = min(self.jobs, len(cells))
        if workers < 2:
            for cell in cells:
                yield cell, _outcome(games, cell, seed, report)
            return
        compiled = {g: games[g].simulation.compiled() for g in {cell.game for cell in cells}}
        interpreted = [cell for cell in cells if not compiled[cell.game]]
        yield from _in_processes(games, interpreted, seed, workers, report)
        yield from _in_threads(games, [cell for cell in cells if compiled[cell.game]], seed, workers, report)


def _play(game: ScoredGame, cell: Cell, seed: int, report: ReportProgress) -> Score:
    return game.simulation.replicate(game.marks, seed, cell.replication, report)


def _outcome(games: Sequence[ScoredGame], cell: Cell, seed: int, report: ReportRounds) -> Score | Exception:
    """The score of a cell, or the exception that it raised."""
    try:
        return _play(games[cell.game], cell, seed, partial(report, cell.game))
    except Exception as error:
        return error


def _in_threads(
    games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    stopped = threading.Event()

    def report_unless_stopped(game: int, rounds: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        report(game, rounds)

    def play(cell: Cell) -> Score | Exception:
        return _outcome(games, cell, seed, report_unless_stopped)

    with _closing_pool(ThreadPoolExecutor(workers), stopped.set) as pool:
        futures = {pool.submit(play, cell): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _in_processes(
    games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    needed = {g: games[g] for g in {cell.game for cell in cells}}
    played_here = set()

    def play_here(k: int) -> Score:
        played_here.add(k)
        return _play(games[cells[k].game], cells[k], seed, partial(report, cells[k].game))

    job, check = partial(_play_in_worker, needed, cells, seed), partial(rehearse, needed, seed)
    for k, outcome in in_processes(job, len(cells), workers, here=play_here, rehearse=check):
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            raise outcome
        if k not in played_here:
            report(cells[k].game, games[cells[k].game].simulation.rounds)
        yield cells[k], outcome


def _play_in_worker(games: Mapping[int, ScoredGame], cells: Sequence[Cell], seed: int, k: int) -> Score:
    return _play(games[cells[k].game], cells[k], seed, lambda rounds: None)


def rehearse(games: Mapping[int, ScoredGame], seed: int) -> list[bytes]:
    """Return the rewards and clicks of the first rounds of each game."""
    scores = []
    for game in games.values():
        marks = np.array([min(REHEARSED, game.simulation.rounds)])
        scores.append(game.simulation.replicate(marks, seed, 0, lambda rounds: None))
    return [score.reward.tobytes() + score.clicks.tobytes() for score in scores]


def compile_ahead(simulations: Sequence[Simulation], jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile the loops of several simulations in parallel processes; one process compiles one kernel at a time.

    The processes fill the kernel cache on disk and end. Returns at once with fewer than two workers. A terminal shows
    which policies were compiled, unless ``progress`` is False.
    """
    count = len(simulations)
    workers = min(count, jobs or cores())
    if workers < 2:
        return
    with progress_bar(f"compiling {count} policies, once for every install", count, progress, first="") as report:
        for k, seconds in in_processes(lambda k: _compile(simulations[k]), count, workers):
            if isinstance(seconds, BaseException):
                raise seconds
            if seconds >= WORTH_SAYING and progress is not False:
                announce(f"compiled {simulations[k].policy_name} in {seconds:.0f} seconds")
            report(1)


def _compile(simulation: Simulation) -> float:
    """Compile a loop, and return how many seconds that took."""
    started = time.monotonic()
    with contextlib.suppress(Exception):  # raised again when it is played
        simulation.compile()
    return time.monotonic() - started


@contextmanager
def _closing_pool(pool: Executor, stop: Callable[[], None]) -> Iterator[Executor]:
    """Yield a pool and shut it down after the block; if the block fails, call ``stop`` first and cancel queued work.

    Running work is waited for, unless the program itself was interrupted and is about to exit: a thread that compiles
    cannot be stopped.
    """
    try:
        yield pool
    except BaseException:
        stop()
        pool.shutdown(wait=not interrupted(), cancel_futures=True)
        raise
    pool.shutdown()
