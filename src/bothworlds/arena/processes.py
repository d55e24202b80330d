"""Work in several processes: in this one, and in fresh interpreters beside it that take part when they have started.

Nothing is forked: a fork of a process with threads, of Python or of a library, may crash or wait for ever. The script
that runs here is not run again in the workers: the work is pickled, by value where it was defined in a script, at a
prompt or in a notebook.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import cloudpickle

__all__ = ["Task", "WorkerProcess", "in_processes", "task_for", "work"]

T = TypeVar("T")
PROGRAM = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from bothworlds.arena.processes import work; work()"
)


def in_processes(
    job: Callable[[int], T],
    count: int,
    workers: int,
    *,
    here: Callable[[int], T] | None = None,
    rehearse: Callable[[], object] | None = None,
) -> Iterator[tuple[int, T | BaseException]]:
    """Yield k and ``job(k)``, or the exception that it raised, for k = 0, ..., count - 1, as they are finished.

    They are started in this order, in this thread and in up to ``workers - 1`` processes, which have copies of ``job``.
    An exception in this thread that is no Exception, such as KeyboardInterrupt, is raised.

    Parameters
    ----------
    job
        Is pickled. If it cannot be, or cannot be loaded in another process, all is done in this thread.
    here
        What is called in this thread instead of ``job``, for an object that cannot be pickled.
    rehearse
        A process takes part only if this function returns there what it returns here: a module that was edited or
        changed after its import is another one in another process.
    """
    waiting, ended = deque(range(count)), SimpleQueue[tuple[int, T | BaseException]]()

    def take() -> int | None:
        try:
            return waiting.popleft()
        except IndexError:
            return None

    def take_part(worker: WorkerProcess) -> None:
        if worker.start():
            while (k := take()) is not None:
                ended.put((k, worker.call(k)))

    with _worker_processes(job, rehearse, min(workers, count) - 1, take_part):
        for _ in range(count):
            k = take() if ended.empty() else None
            if k is None:
                yield ended.get()
                continue
            try:
                outcome: T | BaseException = (here or job)(k)
            except Exception as error:
                outcome = error
            yield k, outcome


@contextmanager
def _worker_processes(
    job: Callable[[int], Any],
    rehearse: Callable[[], object] | None,
    count: int,
    use: Callable[[WorkerProcess], None],
) -> Iterator[None]:
    """Start worker processes, each with a thread that calls ``use``; they are killed afterwards."""
    task = task_for(job, rehearse) if count > 0 else None
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


class Task(NamedTuple):
    """A pickled job with its rehearsal, and what the rehearsal returned in this process."""

    pickled: bytes
    expected: object


def task_for(job: Callable[[int], Any], rehearse: Callable[[], object] | None = None) -> Task | None:
    """Return the task of a worker process; None if the job cannot be pickled, or its rehearsal fails."""
    try:
        return Task(cloudpickle.dumps((job, rehearse)), rehearse() if rehearse else None)
    except Exception:  # the user's classes may raise anything
        return None


class WorkerProcess:
    """A process that does a job for one number at a time. One thread uses it; any thread may call ``kill``."""

    def __init__(self, task: Task) -> None:
        # In a session of its own, Ctrl+C at a terminal does not reach it: this process kills it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._task = task

    def start(self) -> bool:
        """Wait until the worker has loaded the job; return whether it could, and rehearsed as this process did."""
        try:
            self._send(pickle.dumps(sys.path) + self._task.pickled)
            return bool(self._receive() == self._task.expected)
        except (OSError, EOFError):
            return False

    def call(self, k: int) -> Any:
        """Return ``job(k)``, or the exception that it raised; RuntimeError if the worker has ended."""
        try:
            self._send(pickle.dumps(k))
            return self._receive()
        except (OSError, EOFError):
            return RuntimeError(f"a worker process ended with exit code {self._process.wait()}")
        except Exception as error:  # an exception of the user's that cannot be loaded
            return RuntimeError(f"a worker process returned what cannot be loaded: {error!r}")

    def kill(self) -> None:
        """End the worker, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """Release what an ended worker held; ``start`` and ``call`` must have returned."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # bytes that nobody will read
                if pipe is not None:
                    pipe.close()

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)


def work() -> None:
    """Do the job of the parent for every number that it sends. The main function of a worker."""
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a policy prints must not get between the answers
    try:
        job, rehearse = pickle.load(given)
        _answer(answers, rehearse() if rehearse else None)
    except Exception:  # the parent works without this worker
        return
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        while True:
            _answer(answers, _outcome(job, pickle.load(given)))


def _outcome(job: Callable[[int], Any], k: int) -> Any:
    try:
        return job(k)
    except BaseException as error:
        error.add_note(traceback.format_exc())  # a traceback itself cannot be pickled
        return error


def _answer(answers: Any, outcome: object) -> None:
    try:
        message = cloudpickle.dumps(outcome)
    except Exception:
        message = pickle.dumps(RuntimeError(f"a worker process cannot return {outcome!r}: it cannot be pickled"))
    answers.write(message)
    answers.flush()
