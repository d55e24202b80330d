"""Replications in several threads or processes, and compilation ahead of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import cores
from ..progress import ReportProgress, interrupted, progress_bar
from .loop import Score, Simulation

__all__ = ["closing_pool", "compile_ahead", "cores", "replicate"]


def replicate(
    simulation: Simulation,
    marks: NDArray[np.int64],
    seed: int,
    replications: range,
    workers: int,
    report: ReportProgress,
) -> list[Score]:
    """Play several replications, ``workers`` at a time, and return their scores in order.

    Compiled policies run in threads, others in forked processes. With one worker, and for interpreted policies where
    the system cannot fork, they run one after the other in this thread. ``report`` is called from any of the threads.
    """
    if workers == 1:
        return [simulation.replicate(marks, seed, k, report) for k in replications]
    if simulation.compiled():
        return _in_threads(simulation, marks, seed, replications, workers, report)
    if "fork" not in multiprocessing.get_all_start_methods():
        return [simulation.replicate(marks, seed, k, report) for k in replications]
    return _in_processes(simulation, marks, seed, replications, workers, report)


def _in_threads(
    simulation: Simulation,
    marks: NDArray[np.int64],
    seed: int,
    replications: range,
    workers: int,
    report: ReportProgress,
) -> list[Score]:
    stopped = threading.Event()

    def report_unless_stopped(rounds: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        report(rounds)

    with closing_pool(ThreadPoolExecutor(workers), stopped.set) as pool:
        return list(pool.map(lambda k: simulation.replicate(marks, seed, k, report_unless_stopped), replications))


# A forked worker inherits this and unpickles nothing: a policy defined at a prompt works like an imported one.
_inherited: dict[str, Any] = {}


def _in_processes(
    simulation: Simulation,
    marks: NDArray[np.int64],
    seed: int,
    replications: range,
    workers: int,
    report: ReportProgress,
) -> list[Score]:
    simulation.warm_up()
    _inherited["task"] = (simulation, marks, seed)
    try:
        with _forked_pool(workers) as pool:
            scores = []
            for result in pool.map(_replicate_inherited, replications):
                report(simulation.rounds)
                scores.append(result)
            return scores
    finally:
        _inherited.clear()


def _replicate_inherited(replication: int) -> Score:
    simulation, marks, seed = _inherited["task"]
    result: Score = simulation.replicate(marks, seed, replication, lambda rounds: None)
    return result


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

    with closing_pool(pool, terminate):
        yield pool


@contextmanager
def closing_pool(pool: Executor, stop: Callable[[], None]) -> Iterator[Executor]:
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
