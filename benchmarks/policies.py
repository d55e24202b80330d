"""A round of every policy (decide, clicks, learn) at two shapes, and its ratio to FTRL-PBM."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import bothworlds
from bothworlds.arena.loop import advance
from bothworlds.core import streams
from bothworlds.policies import configured_for, names, policy

SHAPES = ((10, 5), (100, 10))
HORIZON = 200_000
BUDGET = 0.6  # seconds of processor time for each measurement, compilation apart
CHUNK = {(10, 5): 1000, (100, 10): 100}


def cost(name: str, n: int, m: int) -> tuple[float, int]:
    """Seconds per round from nothing on, and over how many rounds: up to the horizon, or while the budget lasts."""
    world = bothworlds.worlds.stochastic(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))
    state = configured_for(policy(name), HORIZON, world).init(n, m)
    probabilities, source = world.click_probabilities(0).copy(), streams(0, 0)
    room = np.empty(m, np.int64), np.empty((2, m)), np.zeros(2)
    advance(state, 0, probabilities, source.policy, source.users, *room)
    chunk, rounds, spent = CHUNK[n, m], 0, 0.0
    while rounds < HORIZON and (spent < BUDGET or rounds < 2 * n):
        started = time.thread_time()
        advance(state, chunk, probabilities, source.policy, source.users, *room)
        spent += time.thread_time() - started
        rounds += chunk
    return spent / rounds, rounds


def measure() -> tuple[str, list[dict[str, Any]], list[str]]:
    """One row for every policy; FTRL-PBM is measured again with each, so that a busy machine slows both."""
    rows = []
    for name in names():
        row: dict[str, Any] = {"policy": name}
        for n, m in SHAPES:
            (mine, rounds), (theirs, _) = cost(name, n, m), cost("ftrl-pbm", n, m)
            row |= {
                f"µs at ({n}, {m})": mine * 1e6,
                f"ratio, ({n}, {m})": mine / theirs,
                f"rounds, ({n}, {m})": rounds,
            }
        rows.append(row)
    remark = f"Ratios are to FTRL-PBM, over the first rounds of a run planned for {HORIZON:,}: the dearest ones."
    return "Every policy, one round", rows, [remark]
