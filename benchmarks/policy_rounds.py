"""The cost of a round (decide, clicks, learn) of every policy at two shapes, and its ratio to FTRL-PBM."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import bothworlds
from bothworlds.arena.loop import play_compiled
from bothworlds.core import streams
from bothworlds.policies import configured_for, names, policy
from bothworlds.worlds.users import new_answer

from .measurement import Measurement

SHAPES = ((10, 5), (100, 10))
HORIZON = 200_000
BUDGET = 0.6  # seconds of processor time per measurement, without compilation
CHUNK = {(10, 5): 1000, (100, 10): 100}


def cost(name: str, n: int, m: int) -> tuple[float, int]:
    """Return the seconds per round from the first round on, and the number of rounds: limited by horizon and budget."""
    world = bothworlds.worlds.stochastic(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))
    chosen = configured_for(policy(name), HORIZON, world)
    state = chosen.init(n, m)
    rest = world.users(0), streams(0, 0), new_answer(m)
    play_compiled(chosen, state, 0, *rest)
    chunk, rounds, spent = CHUNK[n, m], 0, 0.0
    while rounds < HORIZON and (spent < BUDGET or rounds < 2 * n):
        started = time.thread_time()
        play_compiled(chosen, state, chunk, *rest)
        spent += time.thread_time() - started
        rounds += chunk
    return spent / rounds, rounds


def measure() -> Measurement:
    """Return one row per policy; FTRL-PBM is measured again with each, so that a busy machine slows both."""
    rows = []
    for name in names():
        row: dict[str, Any] = {"policy": name}
        for n, m in SHAPES:
            (seconds, rounds), (reference, _) = cost(name, n, m), cost("ftrl-pbm", n, m)
            row |= {
                f"µs at ({n}, {m})": seconds * 1e6,
                f"ratio, ({n}, {m})": seconds / reference,
                f"rounds, ({n}, {m})": rounds,
            }
        rows.append(row)
    note = f"Ratios are to FTRL-PBM, over the first rounds of a run of {HORIZON:,}, which are the most expensive."
    return Measurement("Every policy, one round", rows, [note])
