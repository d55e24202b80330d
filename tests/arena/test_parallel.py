"""Compilation ahead of the replications: it fills the cache on disk and changes no result."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

import bothworlds
from bothworlds.arena import compete, parallel
from bothworlds.arena.loop import Simulation
from bothworlds.arena.parallel import compile_ahead, in_forked_processes

WORLD = bothworlds.world("paper/stochastic")


def simulation(policy):
    return Simulation(policy, WORLD, 50, shuffle=True, tell=False)


# A process of its own: nothing is forked where the test runner has threads.
ALONE = """
import bothworlds
from bothworlds.arena.loop import Simulation
from bothworlds.arena.parallel import compile_ahead
from tests.policies.plain import EpsilonGreedy

world = bothworlds.world("paper/stochastic")
players = [bothworlds.policy("uniform"), bothworlds.policy("fixed"), bothworlds.policy("oracle"), EpsilonGreedy()]
compile_ahead([Simulation(player, world, 50, True, False) for player in players], 2)
"""


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs a system that can fork")
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
def test_loops_of_all_playable_policies_are_cached_on_disk(tmp_path):
    """The oracle without its world and a policy in plain Python are skipped."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ALONE], env=environment, check=True, timeout=300)
    assert len(list(tmp_path.rglob("loop.advance-*.nbc"))) == 2


def test_nothing_is_forked_beside_other_threads(monkeypatch):
    pools = []
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", lambda *given, **named: pools.append(given))
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        compile_ahead([simulation(bothworlds.policy("uniform"))] * 2, jobs=2)
    finally:
        stop.set()
        thread.join()
    assert not pools


@pytest.mark.slow
def test_compile_ahead_does_not_change_results(monkeypatch):
    first = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    monkeypatch.setattr(parallel, "compile_ahead", lambda *arguments: None)
    again = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    assert all(np.array_equal(one.reward, other.reward) for one, other in zip(first, again))


# What is computed for 0, 1 and 2, in which processes, and whether an exception is raised here.
FORKED = """
import os
from bothworlds.arena.parallel import in_forked_processes

for workers in (1, 2):
    done = dict(in_forked_processes(lambda k: (k * k, os.getpid()), 3, workers, "squaring", False))
    here = sum(process == os.getpid() for _, process in done.values())
    print(sorted((k, square) for k, (square, _) in done.items()), here)
try:
    list(in_forked_processes(lambda k: 1 // (k - 1), 3, 2, "dividing", False))
except ZeroDivisionError:
    print("raised")
"""


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs a system that can fork")
def test_work_in_forked_processes_comes_back_and_so_do_exceptions():
    run = subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300, capture_output=True, text=True)
    squares = [(0, 0), (1, 1), (2, 4)]
    assert run.stdout == f"{squares} 3\n{squares} 0\nraised\n"


def test_beside_other_threads_work_is_done_in_this_process():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert dict(in_forked_processes(lambda k: os.getpid(), 2, 2, "looking", False)) == dict.fromkeys(
            (0, 1), os.getpid()
        )
    finally:
        stop.set()
        thread.join()


def test_a_terminal_shows_which_policies_were_compiled(monkeypatch):
    said = []
    monkeypatch.setattr(parallel, "announce", said.append)
    monkeypatch.setattr(parallel, "_may_fork", lambda: True)
    seconds = iter([(1, 12.3), (0, 0.2)])  # the second one was in the cache
    monkeypatch.setattr(parallel, "in_forked_processes", lambda *given: seconds)
    compile_ahead([simulation(bothworlds.policy(name)) for name in ("uniform", "fixed")], jobs=2)
    assert said == ["compiled fixed in 12 seconds"]
