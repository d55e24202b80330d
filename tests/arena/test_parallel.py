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
from bothworlds.arena.parallel import compile_ahead

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


def test_compile_ahead_does_not_change_results(monkeypatch):
    first = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    monkeypatch.setattr(parallel, "compile_ahead", lambda *arguments: None)
    again = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    assert all(np.array_equal(one.reward, other.reward) for one, other in zip(first, again))
