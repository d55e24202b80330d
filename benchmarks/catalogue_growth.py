"""How the cost of a round of FTRL-PBM grows with the number of items and of positions, with fitted exponents.

Two phases are measured. In the *first rounds*, most items were never shown and share one row. *All items shown* is the
phase in which every item has losses of its own, which is the most expensive one.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bothworlds
from bothworlds.arena.figures import PALETTE, drawing
from bothworlds.arena.loop import advance
from bothworlds.core import Shape, leaves, streams

from .ftrl_round import click_probabilities
from .measurement import Measurement

ITEMS = (10, 100, 1_000, 10_000, 100_000)  # at 10 positions
POSITIONS = (2, 5, 10, 20, 50)  # at 1,000 items
FITTED_FROM = 100  # items from which on exponents are fitted; with fewer, constant costs dominate
BUDGET = 1.0  # seconds of processor time per measurement
MOST_ROUNDS = 1_000  # so "first rounds" are at most so many
REPEATS = 3
FIGURE = Path("out/growth.png")


def first_rounds(n: int, m: int, every: int) -> Any:
    """Return the initial state."""
    return bothworlds.policy("ftrl-pbm", every=every).init(n, m)


def all_shown(n: int, m: int, every: int) -> Any:
    """Return a state in which every item was shown twice, without a click, in random rounds."""
    state = bothworlds.policies.FtrlPbm(every=every).start(Shape(n, m), sharing=False)
    rng = np.random.default_rng(0)
    for _ in range(2):
        state.loss[np.arange(n), rng.integers(m, size=n)] += n * rng.random(n)
    state.epochs.rounds[0] = every * max(1, round(2 * n / m / every)) - 1
    play(state, 1)  # computes the leader
    return state


def play(state: Any, rounds: int) -> float:
    """Play rounds in the compiled loop of the arena; returns their processor time in seconds."""
    n, m = state.shape
    source, probabilities = streams(0, 0), click_probabilities(n, m)
    work = np.empty(m, np.int64), np.empty((2, m)), np.zeros(2)
    started = time.thread_time()
    advance(state, rounds, probabilities, source.policy, source.users, *work)
    return time.thread_time() - started


def cost(make: Callable[[int, int, int], Any], n: int, m: int, every: int) -> tuple[float, int, Any]:
    """Return the seconds per round, the least of several runs, the number of rounds, and the last state."""
    play(make(n, m, every), 1)
    trial = play(make(n, m, every), 2 * every) / (2 * every)
    rounds = every * max(1, min(MOST_ROUNDS, int(BUDGET / REPEATS / trial)) // every)
    least, state = np.inf, None
    for _ in range(REPEATS):
        state = make(n, m, every)
        least = min(least, play(state, rounds) / rounds)
    return float(least), rounds, state


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the logarithm of the cost over that of the size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


PHASES = {"first rounds": first_rounds, "all items shown": all_shown}
SHAPES = {"items": [(n, 10) for n in ITEMS], "positions": [(1_000, m) for m in POSITIONS]}


def measure() -> Measurement:
    """Return one row per phase, shape and setting of ``every``, and write the figure."""
    rows, notes = [], []
    for varied, shapes in SHAPES.items():
        for phase, make in PHASES.items():
            for every in (1, 100):
                for n, m in shapes:
                    seconds, rounds, state = cost(make, n, m, every)
                    rows.append(
                        {
                            "varied": varied,
                            "phase": phase,
                            "every": every,
                            "n": n,
                            "m": m,
                            "rounds": rounds,
                            "µs per round": seconds * 1e6,
                            "ns per pair": seconds * 1e9 / (n * m),
                            "rows": int(state.leading.urn.n_rows[0]),
                            "state, MB": sum(np.asarray(leaf).nbytes for _, leaf in leaves(state)) / 1e6,
                        }
                    )
                notes.append(_note(rows, varied, phase, every))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    draw(rows, FIGURE)
    notes += [f"Peak memory of this process: {peak:,.0f} MB.", f"figure: {FIGURE}"]
    return Measurement("FTRL-PBM by the size of the catalogue", rows, notes)


def _chosen(rows: Sequence[dict[str, Any]], **where: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def _note(rows: Sequence[dict[str, Any]], varied: str, phase: str, every: int) -> str:
    key = {"items": "n", "positions": "m"}[varied]
    chosen = [row for row in _chosen(rows, varied=varied, phase=phase, every=every) if row["n"] >= FITTED_FROM]
    slope = exponent([row[key] for row in chosen], [row["µs per round"] for row in chosen])
    return f"{phase}, every={every}: the cost of a round grows like {key}^{slope:.2f}."


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the cost of a round over the number of items, and over the number of positions."""
    with drawing(path, 2) as panels:
        for panel, (varied, key) in zip(panels.flat, (("items", "n"), ("positions", "m"))):
            lines = [(phase, every) for phase in PHASES for every in (1, 100)]
            for (phase, every), colour in zip(lines, PALETTE):
                chosen = _chosen(rows, varied=varied, phase=phase, every=every)
                style = "-" if every == 1 else "--"
                sizes, costs = [row[key] for row in chosen], [row["µs per round"] for row in chosen]
                panel.plot(sizes, costs, style, marker="o", markersize=3, color=colour, label=f"{phase}, every={every}")
            panel.set(xscale="log", yscale="log", xlabel=varied, ylabel="µs per round")
            panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
            panel.minorticks_off()
        panels.flat[0].set_title("10 positions")
        panels.flat[1].set_title("1,000 items")
        panels.flat[0].legend(frameon=False, fontsize=6)
