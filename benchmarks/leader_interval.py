"""What the setting ``every`` costs in regret and saves in time: a new leader after every so many rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

import bothworlds
from bothworlds.policies import policy

from .measurement import Measurement

ROUNDS = 100_000
WORLDS = {
    "paper/stochastic": bothworlds.world("paper/stochastic"),
    "yandex/stochastic": bothworlds.world("yandex/stochastic"),
    "paper/periodic-both, phase 10,000": bothworlds.world("paper/periodic-both", phase=10_000),
}
INTERVALS = {
    "ftrl-pbm": (1, 10, 100, 1_000),
    "tsallis-rv": (1, 100),
    "hybrid": (1, 100),
    "lbinf": (1, 100),
    "lbinfv": (1, 100),
}
SEEDS = {"ftrl-pbm": 20, "tsallis-rv": 20}  # 10 for the others, whose rounds are five times as expensive


def measure() -> Measurement:
    """Return one row per policy, world and interval; every interval meets the same users."""
    rows: list[dict[str, Any]] = []
    for name, intervals in INTERVALS.items():
        for world_name, world in WORLDS.items():
            seeds = SEEDS.get(name, 10)
            first = None
            for every in intervals:
                result = bothworlds.play(
                    policy(name, every=every), world, ROUNDS, replications=seeds, jobs=1, progress=False
                )
                regret = result.regret("fixed")[:, -1]
                first = regret if first is None else first
                more = 100.0 * (regret - first) / first.mean()
                rows.append(
                    {
                        "policy": name,
                        "world": world_name,
                        "every": every,
                        "seeds": seeds,
                        "regret": float(regret.mean()),
                        "s.e.": float(regret.std(ddof=1) / np.sqrt(seeds)),
                        "more than every=1, %": float(more.mean()),
                        "s.e. of that": float(more.std(ddof=1) / np.sqrt(seeds)),
                        "µs per round": result.seconds / (ROUNDS * seeds) * 1e6,
                    }
                )
    title = f"Regret after {ROUNDS:,} rounds against the best fixed list, by the number of rounds between leaders"
    return Measurement(title, rows, [])
