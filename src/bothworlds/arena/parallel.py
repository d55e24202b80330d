"""Replications on this machine, in several threads or processes, and compilation ahead of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..core import cores
from ..progress import interrupted, progress_bar
from .cells import Cell, ReportRounds, ScoredGame
from .loop import Score, Simulation, users_class

__all__ = ["LocalEngine", "compile_ahead"]


class LocalEngine:
    """Plays cells on this machine, ``jobs`` at a time: compiled policies in threads, others in forked processes.

    With one job, and for interpreted policies where the system cannot fork, cells are played one after the other in
    this thread.
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
            yield from _one_by_one(games, cells, seed, report)
            return
        compiled = {g: games[g].simulation.compiled() for g in {cell.game for cell in cells}}
        interpreted = [cell for cell in cells if not compiled[cell.game]]
        if "fork" in multiprocessing.get_all_start_methods():
            yield from _in_processes(games, interpreted, seed, workers, report)
        else:
            yield from _one_by_one(games, interpreted, seed, report)
        yield from _in_threads(games, [cell for cell in cells if compiled[cell.game]], seed, workers, report)


def _one_by_one(
    games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    for cell in cells:
        yield cell, _outcome(games, cell, seed, report)


def _outcome(games: Sequence[ScoredGame], cell: Cell, seed: int, report: ReportRounds) -> Score | Exception:
    """The score of a cell, or the exception that it raised."""
    game = games[cell.game]
    try:
        return game.simulation.replicate(game.marks, seed, cell.replication, partial(report, cell.game))
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


# A forked worker inherits this and unpickles nothing: a policy defined at a prompt works like an imported one.
_inherited: dict[str, Any] = {}


def _in_processes(
    games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    if not cells:
        return
    for g in {cell.game for cell in cells}:
        with contextlib.suppress(Exception):  # raised again when it is played
            games[g].simulation.warm_up()
    _inherited["task"] = (games, seed)
    try:
        with _forked_pool(workers) as pool:
            futures = {pool.submit(_play_inherited, cell): cell for cell in cells}
            for future in as_completed(futures):
                cell = futures[future]
                report(cell.game, games[cell.game].simulation.rounds)
                yield cell, future.result()
    finally:
        _inherited.clear()


def _play_inherited(cell: Cell) -> Score | Exception:
    games, seed = _inherited["task"]
    return _outcome(games, cell, seed, lambda game, rounds: None)


def compile_ahead(simulations: Sequence[Simulation], jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile the loops of several simulations in parallel processes; one process compiles one kernel at a time.

    The processes fill the kernel cache on disk and end. Returns at once with fewer than two workers, where the system
    cannot fork, or where other threads run.
    """
    workers = min(len(simulations), jobs or cores())
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1:
        return
    _inherited["simulations"] = list(simulations)
    title = f"compiling {len(simulations)} policies, once for every install"
    try:
        with _forked_pool(workers) as pool:
            compiled = pool.map(_compile_inherited, range(len(simulations)))
            # After the workers are forked: a bar has a thread of its own.
            with progress_bar(title, len(simulations), progress, first="") as report:
                for _ in compiled:
                    report(1)
    finally:
        _inherited.clear()


def _compile_inherited(k: int) -> None:
    simulation: Simulation = _inherited["simulations"][k]
    # A policy that cannot play in this world raises again when it is played.
    with contextlib.suppress(ValueError):
        simulation.compile()


@contextmanager
def _forked_pool(workers: int) -> Iterator[Executor]:
    """Yield a pool of forked processes, which are terminated if the block fails or is interrupted.

    Ctrl+C at a terminal reaches every process of its group. The workers ignore it: the parent ends them.
    """
    context = multiprocessing.get_context("fork")
    ignore = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=signal.signal, initargs=ignore)

    def terminate() -> None:
        for process in list((pool._processes or {}).values()):
            process.terminate()

    with _closing_pool(pool, terminate):
        yield pool


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
