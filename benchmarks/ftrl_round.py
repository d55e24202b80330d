"""The cost of a round of FTRL-PBM (decide, clicks, learn) by shape, compared with the paper's own procedure."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import bothworlds
from bothworlds.arena.loop import play_compiled
from bothworlds.core import streams
from bothworlds.worlds.users import TableUsers, new_answer

from .contenders import FtrlPbm, play_rounds
from .measurement import Measurement

SHAPES = {(10, 5): 200_000, (100, 10): 20_000, (1000, 10): 2_000, (1000, 20): 1_000, (10000, 10): 200}
REPEATS = 3
PAPER_ROUNDS = 40


def click_probabilities(n: int, m: int) -> np.ndarray:
    """Return the click probabilities of the paper's synthetic world, scaled to n items and m positions."""
    return np.outer(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))


def play_once(n: int, m: int, rounds: int, seed: int) -> tuple[float, Any]:
    """Return the processor seconds of the first rounds, and the state after them."""
    policy = bothworlds.policy("ftrl-pbm")
    state, rest = policy.init(n, m), (TableUsers(click_probabilities(n, m)), streams(0, seed), new_answer(m))
    play_compiled(policy, state, 0, *rest)
    started = time.thread_time()
    play_compiled(policy, state, rounds, *rest)
    return time.thread_time() - started, state


def paper_seconds(n: int, m: int, rounds: int) -> float:
    """Return the seconds per round of Frank-Wolfe with 100 assignments and a full decomposition, on SciPy."""
    world = bothworlds.worlds.stochastic(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))
    return play_rounds(FtrlPbm(), world, rounds, 0).seconds / rounds


def measure() -> Measurement:
    """Return one row per shape, the best of ``REPEATS``."""
    rows = []
    for (n, m), rounds in SHAPES.items():
        runs = [play_once(n, m, rounds, seed) for seed in range(REPEATS)]
        cost = min(seconds for seconds, _ in runs) / rounds * 1e6
        effort = runs[0][1].leading.effort
        rows.append(
            {
                "n": n,
                "m": m,
                "rounds": rounds,
                "µs per round": cost,
                "ns per pair": cost * 1e3 / (n * m),
                "Newton steps, mean": effort.steps[0] / rounds,
                "largest": int(effort.most_steps[0]),
                "sweeps": int(effort.sweeps[0]),
            }
        )
    paper = paper_seconds(10, 5, PAPER_ROUNDS) * 1e6
    ratio = paper / rows[0]["µs per round"]
    notes = [
        f"The paper's procedure at (10, 5): {paper:,.0f} µs per round; FTRL-PBM here is {ratio:,.0f} times faster.",
        "A constant cost per pair means that the cost of a round grows like n m.",
    ]
    return Measurement("FTRL-PBM, one round: decide, clicks, learn", rows, notes)
