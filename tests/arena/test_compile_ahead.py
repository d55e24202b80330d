"""Compiling ahead changes nothing but the waiting."""

from __future__ import annotations

import sys
import threading

import numpy as np

import bothworlds
from bothworlds.arena import compete, loop
from bothworlds.arena.loop import Meeting, compile_ahead
from tests.policies.plain import EpsilonGreedy

WORLD = bothworlds.world("paper/stochastic")


def meeting(policy):
    return Meeting(policy, WORLD, 50, shuffle=True, tell=False)


def test_any_policies_can_be_compiled_ahead():
    compile_ahead([meeting(bothworlds.policy("uniform")), meeting(EpsilonGreedy())], jobs=2)
    assert not loop._inherited


def test_a_policy_that_cannot_play_is_refused_only_when_its_turn_comes():
    compile_ahead([meeting(bothworlds.policy("oracle")), meeting(bothworlds.policy("uniform"))], jobs=2)


def test_nothing_is_forked_beside_other_threads(monkeypatch):
    monkeypatch.setattr(loop, "ProcessPoolExecutor", None)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        compile_ahead([meeting(bothworlds.policy("uniform"))] * 2, jobs=2)
    finally:
        stop.set()
        thread.join()


def test_it_makes_no_difference_to_results(monkeypatch):
    first = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    monkeypatch.setattr(sys.modules["bothworlds.arena.compete"], "compile_ahead", lambda meetings, jobs: None)
    again = compete(["uniform", "fixed"], [WORLD], 50, seeds=2, progress=False)
    assert all(np.array_equal(one.reward, other.reward) for one, other in zip(first, again))
