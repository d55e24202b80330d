"""Compilation ahead of the replications: it fills the cache on disk and changes no result."""

from __future__ import annotations

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

import bothworlds
from bothworlds.arena import compete, parallel
from bothworlds.arena.game import Game
from bothworlds.arena.parallel import compile_ahead, in_processes

WORLD = bothworlds.world("paper/stochastic")


def game(policy):
    return Game.of(policy, WORLD, 50)


ALONE = """
import bothworlds
from bothworlds.arena.game import Game
from bothworlds.arena.parallel import compile_ahead
from tests.policies.plain import EpsilonGreedy

world = bothworlds.world("paper/stochastic")
players = [bothworlds.policy(name) for name in ("uniform", "fixed")] + [EpsilonGreedy(), EpsilonGreedy()]
compile_ahead([Game.of(player, world, 50) for player in players], 2)
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
def test_loops_of_all_playable_policies_are_cached_on_disk(tmp_path):
    """A policy in plain Python is skipped."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ALONE], env=environment, check=True, timeout=300)
    assert len(list(tmp_path.rglob("loop.advance-*.nbc"))) == 2


@pytest.mark.slow
def test_compile_ahead_does_not_change_results(monkeypatch):
    first = compete(["uniform", "fixed"], [WORLD], 50, replications=2, progress=False)
    monkeypatch.setattr(parallel, "compile_ahead", lambda *arguments: None)
    again = compete(["uniform", "fixed"], [WORLD], 50, replications=2, progress=False)
    assert all(np.array_equal(one.reward, other.reward) for one, other in zip(first, again))


def square(k):
    return k * k, os.getpid()


def divide(k):
    return 1 // (k - 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_work_in_processes_comes_back_and_so_do_exceptions(workers):
    done = dict(in_processes(square, [0, 1, 2], workers, "squaring", False))
    assert {k: value for k, (value, _) in done.items()} == {0: 0, 1: 1, 2: 4}
    assert all((process == os.getpid()) == (workers == 1) for _, process in done.values())
    with pytest.raises(ZeroDivisionError):
        list(in_processes(divide, [0, 1, 2], workers, "dividing", False))


def test_a_terminal_shows_which_policies_were_compiled(monkeypatch):
    said = []
    monkeypatch.setattr(parallel, "announce", said.append)
    seconds = iter([(1, 12.3), (0, 0.2)])  # the second one was in the cache
    monkeypatch.setattr(parallel, "in_processes", lambda *given: seconds)
    compile_ahead([game(bothworlds.policy(name)) for name in ("uniform", "fixed", "toprank", "mw")], jobs=2)
    assert said == ["compiled fixed in 12 seconds"]
