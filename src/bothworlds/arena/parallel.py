"""Replications on this machine, in several threads or processes, and compilation ahead of them."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from ..core import cores
from ..progress import announce, interrupted, progress_bar
from .cells import Cell, ReportRounds, ScoredGame
from .loop import Score, Simulation, users_class
from .worker_process import Task, WorkerProcess, task_for

__all__ = ["LocalEngine", "compile_ahead", "in_forked_processes"]

T = TypeVar("T")
WORTH_SAYING = 1.0  # seconds of compiling; reading the cache takes less


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
            yield from _one_by_one(games, cells, seed, report)
            return
        compiled = {g: games[g].simulation.compiled() for g in {cell.game for cell in cells}}
        interpreted = [cell for cell in cells if not compiled[cell.game]]
        yield from _in_processes(games, interpreted, seed, workers, report)
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


def _in_processes(
    games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, workers: int, report: ReportRounds
) -> Iterator[tuple[Cell, Score | Exception]]:
    """Play cells in this thread, and in worker processes that take part as soon as they have started.

    All are played in this thread if the games cannot be pickled, or are not the same in another process.
    """
    if not cells:
        return
    waiting, ended = deque(cells), SimpleQueue[tuple[Cell, Score | BaseException]]()

    def take() -> Cell | None:
        try:
            return waiting.popleft()
        except IndexError:
            return None

    def take_part(worker: WorkerProcess) -> None:
        if worker.start():
            while (cell := take()) is not None:
                ended.put((cell, worker.play(cell)))

    task = task_for({g: games[g] for g in {cell.game for cell in cells}}, seed)
    with _worker_processes(task, min(workers, len(cells)) - 1, take_part):
        for _ in cells:
            cell = take() if ended.empty() else None
            if cell is not None:
                yield cell, _outcome(games, cell, seed, report)
                continue
            cell, outcome = ended.get()
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
            report(cell.game, games[cell.game].simulation.rounds)
            yield cell, outcome


@contextmanager
def _worker_processes(task: Task | None, count: int, use: Callable[[WorkerProcess], None]) -> Iterator[None]:
    """Start worker processes, if there is a task, each with a thread that calls ``use``; they are killed afterwards."""
    processes: list[WorkerProcess] = []
    threads: list[threading.Thread] = []
    try:
        with contextlib.suppress(OSError):  # the system starts no more of them
            while task is not None and len(processes) < count:
                processes.append(WorkerProcess(task))
        threads += [threading.Thread(target=use, args=(process,), daemon=True) for process in processes]
        for thread in threads:
            thread.start()
        yield
    finally:
        for process in processes:
            process.kill()
        for thread in threads:
            thread.join()
        for process in processes:
            process.close()


def compile_ahead(simulations: Sequence[Simulation], jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile the loops of several simulations in parallel processes; one process compiles one kernel at a time.

    The processes fill the kernel cache on disk and end. Returns at once with fewer than two workers, where the system
    cannot fork, or where other threads run. A terminal shows which policies were compiled, unless ``progress`` is
    False.
    """
    workers = min(len(simulations), jobs or cores())
    if workers < 2 or not _may_fork():
        return
    title = f"compiling {len(simulations)} policies, once for every install"
    done = in_forked_processes(lambda k: _compile(simulations[k]), len(simulations), workers, title, progress)
    for k, seconds in done:
        if seconds >= WORTH_SAYING and progress is not False:
            announce(f"compiled {simulations[k].policy_name} in {seconds:.0f} seconds")


def _compile(simulation: Simulation) -> float:
    """Compile a loop, and return how many seconds that took."""
    started = time.monotonic()
    # A policy that cannot play in this world raises again when it is played.
    with contextlib.suppress(ValueError):
        simulation.compile()
    return time.monotonic() - started


# A forked worker inherits this.
_inherited: dict[str, Any] = {}


def in_forked_processes(
    work: Callable[[int], T], count: int, workers: int, title: str, progress: bool | None = None
) -> Iterator[tuple[int, T]]:
    """Yield k and ``work(k)`` for k = 0, ..., count - 1 as they are finished, each computed in a forked process.

    The processes have copies of all objects of this one; only what ``work`` returns comes back. An exception of
    ``work`` is raised here. Without forks, or with one worker, all is done in this thread, in order. ``title`` is that
    of the progress bar.
    """
    if workers < 2 or count < 2 or not _may_fork():
        with progress_bar(title, count, progress, first="") as report:
            for k in range(count):
                yield k, work(k)
                report(1)
        return
    _inherited["work"] = work
    try:
        with _forked_pool(min(workers, count)) as pool:
            futures = {pool.submit(_work_inherited, k): k for k in range(count)}
            # After the workers are forked: a bar has a thread of its own.
            with progress_bar(title, count, progress, first="") as report:
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    report(1)
    finally:
        _inherited.clear()


def _work_inherited(k: int) -> Any:
    return _inherited["work"](k)


def _may_fork() -> bool:
    """Whether the system can fork, and no other thread holds a lock that a child would wait for."""
    return "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1


@contextmanager
def _forked_pool(workers: int) -> Iterator[Executor]:
    """Yield a pool of forked processes, which are terminated if the block fails or is interrupted.

    Ctrl+C at a terminal reaches every process of its group. The workers ignore it: the parent ends them.
    """
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)

    def terminate() -> None:
        for process in list((pool._processes or {}).values()):
            process.terminate()

    with _closing_pool(pool, terminate):
        yield pool


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # the garbage collector need not look at what the parent has made


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
