"""Work in fresh processes: beside threads, in scripts, at a prompt, and with the same bits as in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from functools import partial

import numpy as np
import pytest

import bothworlds
from bothworlds import play
from bothworlds.arena.cells import ScoredGame
from bothworlds.arena.loop import Simulation
from bothworlds.arena.parallel import REHEARSED, compile_ahead, rehearse
from bothworlds.arena.processes import WorkerProcess, in_processes, task_for
from tests.policies.plain import EpsilonGreedy

WORLD = bothworlds.world("paper/stochastic")


def silent(rounds):
    pass


def task_of(policy, rounds=100):
    """A job that plays replication k, and its task."""
    game = ScoredGame(Simulation(policy, WORLD, rounds, True, False), np.array([rounds]), 4)
    job = partial(game.simulation.replicate, game.marks, 7, report=silent)
    return job, task_for(job, partial(rehearse, {0: game}, 7))


@pytest.fixture
def started():
    """Starts worker processes, and ends them."""
    workers = []

    def start(task):
        workers.append(WorkerProcess(task))
        return workers[-1], workers[-1].start()

    yield start
    for worker in workers:
        worker.kill()
        worker.close()


def test_a_worker_plays_to_the_bit_what_this_process_plays(started):
    job, task = task_of(EpsilonGreedy())
    worker, ready = started(task)
    assert ready
    here, there = job(3), worker.call(3)
    assert there.reward.tobytes() == here.reward.tobytes()
    assert there.clicks.tobytes() == here.clicks.tobytes()


class Talkative(EpsilonGreedy):
    def init(self, n_items, n_positions):
        print("what a policy prints is not an answer")
        os.write(1, b"nor is this")
        return super().init(n_items, n_positions)


def test_what_a_policy_prints_is_not_mixed_with_answers(started):
    worker, ready = started(task_of(Talkative())[1])
    assert ready
    assert worker.call(0).reward.size == 1


class Unusual(Exception):
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("no")


class Fails(EpsilonGreedy):
    """Fails after the rehearsal."""

    def __init__(self, error):
        self.error = error

    def learn(self, state, decision, clicks):
        if state.shown.sum() > 5 * (REHEARSED + 2):
            self.error()
        return super().learn(state, decision, clicks)


def divide():
    return 1 // 0


def interrupt():
    raise KeyboardInterrupt


def end():
    os._exit(3)


def raise_unusual():
    raise Unusual("strange")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (divide, ZeroDivisionError, "division"),
        (interrupt, KeyboardInterrupt, ""),
        (end, RuntimeError, "ended with exit code 3"),
        (raise_unusual, RuntimeError, "Unusual('strange')"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_failures_of_a_worker_come_back(error, kind, words, started):
    worker, ready = started(task_of(Fails(error))[1])
    outcome = worker.call(0)
    assert ready
    assert type(outcome) is kind
    assert words in str(outcome)


def test_an_error_of_a_worker_has_its_traceback_as_a_note(started):
    worker, _ = started(task_of(Fails(divide))[1])
    assert "in divide" in worker.call(0).__notes__[0]


class Changed(EpsilonGreedy):
    """A class that a worker imports without what was changed here."""

    first = 0

    def decide(self, state, rng):
        decision = super().decide(state, rng)
        return decision._replace(ranking=np.roll(decision.ranking, self.first))


def test_a_worker_that_plays_otherwise_takes_no_part(started, monkeypatch):
    """Such as one that imports a module that was edited, or changed, after its import here."""
    monkeypatch.setattr(Changed, "first", 1)
    assert not started(task_of(Changed())[1])[1]
    one, two = (play(Changed(), WORLD, 200, seeds=4, jobs=jobs) for jobs in (1, 3))
    assert np.array_equal(one.reward, two.reward)


class Locked(EpsilonGreedy):
    def __init__(self):
        self.lock = threading.Lock()


def test_a_policy_that_cannot_be_pickled_plays_in_this_process():
    player = Locked()
    assert task_of(player)[1] is None
    one, two = (play(player, WORLD, 50, seeds=3, jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one.reward, two.reward)


def test_where_no_process_can_be_started_all_is_played_here(monkeypatch):
    expected = play(EpsilonGreedy(), WORLD, 50, seeds=3, jobs=1)
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    assert np.array_equal(play(EpsilonGreedy(), WORLD, 50, seeds=3, jobs=2).reward, expected.reward)


def square(k):
    return k * k


def test_every_number_is_worked_on_once_in_whatever_process():
    for workers in (1, 2, 5):
        assert dict(in_processes(square, 4, workers)) == {0: 0, 1: 1, 2: 4, 3: 9}
    assert list(in_processes(square, 0, 2)) == []


def divide_by(k):
    return 1 // (k - 1)


def test_an_exception_is_yielded_in_place_of_a_result():
    done = dict(in_processes(divide_by, 3, 2))
    assert (done[0], done[2], type(done[1])) == (-1, 1, ZeroDivisionError)


def test_nothing_is_forked(monkeypatch):
    """A fork of a process with threads can fail, or wait for ever for a lock that a thread held."""

    def fork():
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    assert play(EpsilonGreedy(), WORLD, 50, seeds=3, jobs=3).reward.shape == (3, 50)
    compile_ahead([Simulation(bothworlds.policy(name), WORLD, 50, True, False) for name in ("uniform", "fixed")], 2)


# Two replications that wait for each other: they end only if they play at the same time. Each process that plays leaves
# a file; the rounds of the rehearsal do not wait.
SCRIPT = f"""
    import os, sys, threading, time
    from pathlib import Path
    import numpy as np
    from bothworlds import Decision, play

    print("this script runs")
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    folder = Path(sys.argv[1])

    class Mine:
        def init(self, n_items, n_positions):
            return {{"clicks": np.zeros(n_items), "rounds": 0, "m": n_positions}}
        def decide(self, state, rng):
            ranking = np.argsort(-state["clicks"] - rng.random(state["clicks"].size))[: state["m"]]
            return Decision(ranking, np.full(state["m"], np.nan))
        def learn(self, state, decision, clicks):
            state["clicks"][decision.ranking] += clicks
            state["rounds"] += 1
            if state["rounds"] == {REHEARSED} + 1 and WAIT:
                (folder / str(os.getpid())).touch()
                while len(list(folder.iterdir())) < 2:
                    time.sleep(0.01)

    WAIT = True
    two = play(Mine(), "paper/stochastic", rounds=30, seeds=2, jobs=2)
    WAIT = False
    one = play(Mine(), "paper/stochastic", rounds=30, seeds=2, jobs=1)
    print("equal", np.array_equal(one.reward, two.reward), len(list(folder.iterdir())))

"""


@pytest.mark.parametrize("how", ["script", "module", "prompt"])
def test_a_policy_of_a_script_without_a_main_guard_plays_beside_threads(how, tmp_path):
    """The script runs once: no worker runs it again. A prompt is an interactive interpreter."""
    pids = tmp_path / "pids"
    pids.mkdir()
    code = textwrap.dedent(SCRIPT)
    (tmp_path / "mine.py").write_text(code)
    command = {"script": ["mine.py"], "module": ["-m", "mine"], "prompt": ["-i", "-q", "-"]}[how]
    ran = subprocess.run(
        [sys.executable, *command, pids],
        input=code.replace("sys.argv[1]", repr(str(pids))) if how == "prompt" else None,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout.split("\n") == ["this script runs", "equal True 2", ""], ran.stderr
