"""Replications on this machine, in several threads or processes, and compilation ahead of them."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import cloudpickle

from ..core import cores
from ..progress import announce, interrupted, progress_bar
from .game import Game
from .loop import Score, loop_classes, replicate


class Cell(NamedTuple):
    """One replication of the game with this index. Cells may be played in any order, in threads, or in processes."""

    game: int
    replication: int


#: Called with the index of a game, and the number of its rounds that were played since the last call.
ReportRounds = Callable[[int, int], None]

S = TypeVar("S")
T = TypeVar("T")
MANY_LOOPS = 4  # compiling fewer takes less time than starting processes, if they are in the cache
WORTH_SAYING = 1.0  # seconds of compiling; reading the cache takes less


class LocalEngine:
    """Plays cells on this machine, ``jobs`` at a time: compiled policies in threads, others in processes.

    With one job, and for interpreted policies that cannot be pickled, cells are played one after the other in this
    thread.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or cores()

    def prepare(self, games: Sequence[Game], progress: bool | None) -> None:
        """Compile the loops of the games in parallel processes."""
        # The compiled loop of a policy is the same in all worlds with users of one class: one such world is enough.
        loops = {(type(game.policy), loop_classes(game.world)): game for game in games}
        compile_ahead(list(loops.values()), self.jobs, progress)

    def play(
        self, games: Sequence[Game], cells: Sequence[Cell], report: ReportRounds
    ) -> Iterator[tuple[Cell, Score | Exception]]:
        """Play the cells, interpreted policies first; ``report`` is called from any thread."""
        workers = min(self.jobs, len(cells))
        if workers < 2:
            yield from _one_by_one(games, cells, report)
            return
        compiled = {g: games[g].compiled() for g in {cell.game for cell in cells}}
        interpreted = [cell for cell in cells if not compiled[cell.game]]
        yield from _in_processes(games, interpreted, workers, report)
        yield from _in_threads(games, [cell for cell in cells if compiled[cell.game]], workers, report)


def _one_by_one(
    games: Sequence[Game], cells: Sequence[Cell], report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    for cell in cells:
        yield cell, _outcome(games, cell, report)


def _outcome(games: Sequence[Game], cell: Cell, report: ReportRounds) -> Score | Exception:
    """The score of a cell, or the exception that it raised."""
    try:
        return replicate(games[cell.game], cell.replication, partial(report, cell.game))
    except Exception as error:
        return error


def _in_threads(
    games: Sequence[Game], cells: Sequence[Cell], workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    stopped = threading.Event()

    def report_unless_stopped(game: int, rounds: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        report(game, rounds)

    def play(cell: Cell) -> Score | Exception:
        return _outcome(games, cell, report_unless_stopped)

    with _closing_pool(ThreadPoolExecutor(workers), stopped.set) as pool:
        futures = {pool.submit(play, cell): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _in_processes(
    games: Sequence[Game], cells: Sequence[Cell], workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    """Play cells in worker processes, or in this thread if the games cannot be pickled, or not be loaded there."""
    if not cells:
        return
    try:
        pickled = cloudpickle.dumps({g: games[g] for g in {cell.game for cell in cells}})
    except Exception:  # the user's classes may raise anything
        yield from _one_by_one(games, cells, report)
        return
    with worker_processes(min(workers, len(cells))) as pool:
        if not pool.submit(_can_load, pickled).result():
            yield from _one_by_one(games, cells, report)
            return
        futures = {pool.submit(_play_pickled, pickled, cell): cell for cell in cells}
        for future in as_completed(futures):
            cell = futures[future]
            report(cell.game, games[cell.game].rounds)
            try:
                yield cell, future.result()
            except Exception as error:  # the process ended, or what it returned cannot be pickled
                yield cell, error


def _can_load(pickled: bytes) -> bool:
    try:
        _load(pickled)
    except Exception:
        return False
    return True


@lru_cache(1)
def _load(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _play_pickled(pickled: bytes, cell: Cell) -> Score | Exception:
    return _outcome(_load(pickled), cell, lambda game, rounds: None)


def compile_ahead(games: Sequence[Game], jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile the loops of several games in parallel processes; one process compiles one kernel at a time.

    The processes fill the kernel cache on disk and end. Returns at once with one worker or few loops, which are
    compiled when they are played. A terminal shows which policies were compiled, unless ``progress`` is False.
    """
    workers = min(len(games), jobs or cores())
    if workers < 2 or len(games) < MANY_LOOPS:
        return
    title = f"compiling {len(games)} policies, once for every install"
    for k, seconds in in_processes(_compile, games, workers, title, progress):
        if seconds >= WORTH_SAYING and progress is not False:
            announce(f"compiled {games[k].policy_name} in {seconds:.0f} seconds")


def _compile(game: Game) -> float:
    """Compile a loop, and return how many seconds that took."""
    started = time.monotonic()
    # A policy that cannot play in this world raises again when it is played.
    with contextlib.suppress(ValueError):
        game.compile()
    return time.monotonic() - started


def in_processes(
    work: Callable[[S], T], given: Sequence[S], workers: int, title: str, progress: bool | None = None
) -> Iterator[tuple[int, T]]:
    """Yield k and ``work(given[k])`` as they are finished, computed in worker processes.

    An exception of ``work`` is raised here. With one worker, all is done in this thread, in order. ``title`` is that of
    the progress bar.
    """
    with progress_bar(title, len(given), progress, first="") as report:
        if min(workers, len(given)) < 2:
            for k, argument in enumerate(given):
                yield k, work(argument)
                report(1)
            return
        with worker_processes(min(workers, len(given))) as pool:
            futures = {pool.submit(work, argument): k for k, argument in enumerate(given)}
            for future in as_completed(futures):
                yield futures[future], future.result()
                report(1)


@contextmanager
def worker_processes(workers: int) -> Iterator[Executor]:
    """Yield a pool of interpreters, which are killed if the block fails or is interrupted.

    Nothing is forked, so threads of this process do no harm, and the script that runs here is not run again: what was
    defined in a script, at a prompt or in a notebook is pickled by value.
    """
    import loky

    # Compiled code is kept in memory for good: this is no leak for which a worker would have to be replaced.
    kept = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
    pool = loky.ProcessPoolExecutor(workers, initializer=_ignore_interrupts, env=kept)
    try:
        yield pool
    except BaseException:
        pool.shutdown(kill_workers=True)
        raise
    pool.shutdown()


def _ignore_interrupts() -> None:
    """Ctrl+C at a terminal reaches every process of its group; the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
