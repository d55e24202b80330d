"""A process that plays replications for this one: a fresh interpreter, whatever threads run here.

Nothing is forked, and the script that runs here is not run again: games are pickled, by value where their classes were
defined in a script, at a prompt or in a notebook.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from .cells import Cell, ScoredGame
from .loop import Score

__all__ = ["Task", "WorkerProcess", "task_for", "work"]

REHEARSED = 10  # rounds
PROGRAM = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from bothworlds.arena.worker_process import work; work()"
)


class Task(NamedTuple):
    """Pickled games and their seed, and how the first rounds of each game went in this process."""

    pickled: bytes
    rehearsal: list[bytes]


def task_for(games: Mapping[int, ScoredGame], seed: int) -> Task | None:
    """Return the task to play these games, by their indices; None if they cannot be pickled, or fail at once."""
    try:
        return Task(cloudpickle.dumps((games, seed)), _rehearse(games, seed))
    except Exception:  # the user's classes may raise anything
        return None


def _rehearse(games: Mapping[int, ScoredGame], seed: int) -> list[bytes]:
    """Return the rewards and clicks of the first rounds of each game."""
    scores = []
    for game in games.values():
        marks = np.array([min(REHEARSED, game.simulation.rounds)])
        scores.append(game.simulation.replicate(marks, seed, 0, lambda rounds: None))
    return [score.reward.tobytes() + score.clicks.tobytes() for score in scores]


class WorkerProcess:
    """A process that plays the cells of a task, one at a time. One thread uses it; any thread may call ``kill``."""

    def __init__(self, task: Task) -> None:
        # In a session of its own, Ctrl+C at a terminal does not reach it: this process kills it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._task = task

    def start(self) -> bool:
        """Wait until the worker has loaded the task; return whether it plays the games as this process does.

        It does not if a class cannot be imported there, or if a module was edited or changed after its import here.
        """
        try:
            self._send(pickle.dumps(sys.path) + self._task.pickled)
            return bool(self._receive() == self._task.rehearsal)
        except (OSError, EOFError):
            return False

    def play(self, cell: Cell) -> Score | BaseException:
        """Return the score of a cell, or the exception that it raised, or RuntimeError if the worker has ended."""
        try:
            self._send(pickle.dumps(cell))
            outcome: Score | BaseException = self._receive()
            return outcome
        except (OSError, EOFError):
            return RuntimeError(f"the process that played it ended with exit code {self._process.wait()}")
        except Exception as error:  # an exception of the user's that cannot be loaded
            return RuntimeError(f"the process that played it sent what cannot be read: {error!r}")

    def kill(self) -> None:
        """End the worker, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """Release what an ended worker held; ``play`` must have returned."""
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
    """Play the cells that the parent sends, until it sends no more. The main function of a worker."""
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a policy prints must not get between the answers
    try:
        games, seed = pickle.load(given)
        _answer(answers, _rehearse(games, seed))
    except Exception:  # the parent plays without this worker
        return
    with contextlib.suppress(EOFError):
        while True:
            _answer(answers, _outcome(games, pickle.load(given), seed))


def _outcome(games: Mapping[int, ScoredGame], cell: Cell, seed: int) -> Score | BaseException:
    game = games[cell.game]
    try:
        return game.simulation.replicate(game.marks, seed, cell.replication, lambda rounds: None)
    except BaseException as error:
        error.add_note(traceback.format_exc())  # a traceback itself cannot be pickled
        return error


def _answer(answers: Any, outcome: object) -> None:
    try:
        message = cloudpickle.dumps(outcome)
    except Exception:
        message = pickle.dumps(RuntimeError(f"it failed with what cannot be pickled: {outcome!r}"))
    answers.write(message)
    answers.flush()
