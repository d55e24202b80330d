"""What all-weather earns, compared with FTRL-PBM and PBM-UCB-MLE, in the arena and in random worlds; and what it costs.

A row names the target that was set for it, and whether it is reached. Random worlds have fixed seeds. Set
``BOTHWORLDS_BENCH_ROUNDS`` and ``BOTHWORLDS_BENCH_SEEDS`` for a shorter run; the targets are those of 200,000 rounds.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import bothworlds
from bothworlds.arena.loop import play_compiled
from bothworlds.core import streams
from bothworlds.policies import policy
from bothworlds.worlds import World, matrix, stochastic
from bothworlds.worlds.users import new_answer

from .measurement import Measurement

ROUNDS = int(os.environ.get("BOTHWORLDS_BENCH_ROUNDS", "200000"))
SEEDS = int(os.environ.get("BOTHWORLDS_BENCH_SEEDS", "10"))
POLICIES = ("all-weather", "ftrl-pbm", "pbm-ucb-mle")
BENT_SHAPES = ((10, 5), (12, 4), (8, 4))
BELOW = 0.005  # the most that it may earn less than FTRL-PBM
COSTS = {(10, 5): (100_000, 2.5), (100, 10): (20_000, 1.5), (1000, 10): (6_000, 1.5)}  # rounds, target ratio


class Game(NamedTuple):
    """A world, and what all-weather is to earn there: at least ``target``, or as much as the policy ``rival``."""

    name: str
    world: World
    target: float = -math.inf
    rival: str = "ftrl-pbm"
    slack: float = BELOW


def games() -> Iterator[Game]:
    """Yield the worlds of the arena, other named ones, random product worlds and random bent ones."""
    named = bothworlds.world
    yield Game("steady, gap 0.03", named("paper/stochastic"), 2.083)
    yield Game("steady, gap 0.01", named("paper/stochastic", gap=0.01), 2.1365)
    yield Game("Yandex", named("yandex/stochastic"), 0.863)
    yield Game("items exchanged", named("paper/periodic-items"), 2.079)
    yield Game("all reversed", named("paper/periodic-both"), 2.079)
    for name in ("corruption", "fraud", "growing-phases", "hard-instance"):
        yield Game(name, named(f"adversarial/{name}"))
    yield Game("drift, slow", named("drift/slow"))
    yield Game("drift, switching", named("drift/switching"))
    for n, m in ((5, 5), (20, 5), (50, 10), (100, 10)):
        yield Game(f"product, {n} x {m}", product_world(n, m), rival="pbm-ucb-mle", slack=0.0)
    for seed in range(20):
        yield Game(f"bent {seed}", bent_world(seed), slack=0.0)


def product_world(n: int, m: int, seed: int = 1) -> World:
    """Return random attraction and examination."""
    rng = np.random.default_rng([seed, n, m])
    return stochastic(rng.uniform(0.05, 0.9, n), rng.uniform(0.1, 1.0, m))


def bent_world(seed: int) -> World:
    """Return a random product of attraction and examination, times a lognormal factor for every pair."""
    rng = np.random.default_rng([2, seed])
    n, m = BENT_SHAPES[seed % len(BENT_SHAPES)]
    product = np.outer(rng.uniform(0.05, 0.9, n), rng.uniform(0.1, 1.0, m))
    return matrix(np.clip(product * rng.lognormal(0.0, rng.uniform(0.2, 0.4), (n, m)), 0.001, 0.999))


def row_of(game: Game) -> dict[str, Any]:
    """Play all-weather, FTRL-PBM and the rival in one world."""
    played = [name for name in POLICIES if name in ("all-weather", "ftrl-pbm", game.rival)]
    results = {name: bothworlds.play(name, game.world, ROUNDS, replications=SEEDS, progress=False) for name in played}
    earned = {name: result.final() for name, result in results.items()}
    least = game.target if game.target > 0.0 else earned[game.rival][0] - game.slack
    ours = results["all-weather"]
    return {
        "world": game.name,
        "best of each round": f"{ours.best_dynamic[-1] / ROUNDS:.4f}",
        "best fixed": f"{ours.best_fixed[-1] / ROUNDS:.4f}",
        **{name: f"{earned[name][0]:.4f} ±{earned[name][1]:.4f}" if name in earned else "" for name in POLICIES},
        "at least": f"{least:.4f}",
        "reached": "yes" if earned["all-weather"][0] >= least else "no",
    }


def seconds_per_round(name: str, n: int, m: int, rounds: int) -> float:
    """Return the processor time of a round with steady users, averaged from the first one on."""
    world = stochastic(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))
    chosen = policy(name)
    state, rest = chosen.init(n, m), (world.users(0), streams(0, 0), new_answer(m))
    play_compiled(chosen, state, 0, *rest)
    started = time.thread_time()
    play_compiled(chosen, state, rounds, *rest)
    return (time.thread_time() - started) / rounds


def cost_notes() -> Iterator[str]:
    """Yield the cost of a round at every shape, as a ratio to FTRL-PBM; the latter is measured before and after."""
    for (n, m), (rounds, most) in COSTS.items():
        names = ("ftrl-pbm", "all-weather", "ftrl-pbm")
        before, ours, after = (seconds_per_round(name, n, m, rounds) for name in names)
        ratio = 2.0 * ours / (before + after)
        yield (
            f"Cost at ({n}, {m}), {rounds:,} rounds: {ours * 1e6:.1f} µs, {ratio:.2f} times that of ftrl-pbm; "
            f"at most {most}: {'reached' if ratio <= most else 'not reached'}"
        )


def measure() -> Measurement:
    """Return one row per world, and notes on the cost; progress is written to standard error."""
    rows = []
    for game in games():
        rows.append(row_of(game))
        print(*rows[-1].values(), sep="  ", file=sys.stderr, flush=True)
    title = f"all-weather, average reward in {ROUNDS:,} rounds, {SEEDS} replications"
    return Measurement(title, rows, list(cost_notes()))
