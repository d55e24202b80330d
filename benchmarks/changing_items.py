"""Items that come and go in a seasonal world: a ranker that goes on, and one that is started again at every change.

A page of three slots and twelve items, of which nine are active. Every thousand pages the item that has been active for
longest is paused, another is resumed, and every third time a new item is added. The attraction of all items is
reversed every 5,000 pages. The result is the expected clicks per page, as a share of those of the best list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bothworlds import Ranker
from bothworlds.arena.figures import drawing
from bothworlds.line_styles import PALETTE

from .measurement import Measurement

PAGES, CHANGE, SEASON, SEEDS = 30_000, 1_000, 5_000, 8
EXAMINATION = np.array([1.0, 0.6, 0.4])
POLICIES = ("all-weather", "ftrl-pbm", "gibbs-ts")
STEP = 500  # pages of a point in the figure
FIGURE = Path("out/changing-items.png")


def simulate(policy: str, seed: int, *, restart: bool) -> np.ndarray:
    """Return the expected clicks of every page as a share of the best."""
    rng = np.random.default_rng(seed)
    attraction = {f"item {k}": float(a) for k, a in enumerate(rng.permutation(np.linspace(0.05, 0.6, 12)))}
    active, paused = list(attraction)[:9], list(attraction)[9:]
    ranker = Ranker(attraction, 3, policy=policy, seed=seed)
    for item in paused:
        ranker.pause(item)
    shares = np.empty(PAGES)
    for k in range(PAGES):
        if k % CHANGE == 0 and k > 0:
            left, back = active.pop(0), paused.pop(0)
            if k % (3 * CHANGE) == 0:
                back = f"item {len(attraction)}"
                attraction[back] = float(rng.uniform(0.05, 0.6))
            active.append(back)
            paused.append(left)
            if restart:
                ranker = Ranker(active, 3, policy=policy, seed=seed + k)
            else:
                ranker.add(back)
                ranker.pause(left)
        reversed_ = (k // SEASON) % 2
        rates = {item: 0.65 - a if reversed_ else a for item, a in attraction.items()}
        shown = ranker.rank()
        chances = np.array([rates[item] for item in shown.items]) * EXAMINATION
        best = np.sort([rates[item] for item in active])[::-1][:3] @ EXAMINATION
        shares[k] = chances.sum() / best
        clicks = rng.random(3) < chances
        ranker.feedback(shown.id, clicked=[item for item, click in zip(shown.items, clicks) if click])
    return shares


def measure() -> Measurement:
    """Return one row per policy, and write the figure."""
    rows, curves = [], {}
    for policy in POLICIES:
        row: dict[str, Any] = {"policy": policy}
        runs = {}
        for name, restart in (("goes on", False), ("started again", True)):
            runs[name] = np.array([simulate(policy, seed, restart=restart) for seed in range(SEEDS)])
            row[name] = runs[name].mean()
        gain = (runs["goes on"] - runs["started again"]).mean(axis=1)
        row |= {"difference": gain.mean(), "standard error": gain.std(ddof=1) / np.sqrt(SEEDS)}
        rows.append(row)
        curves[policy] = runs
    _draw(curves)
    note = f"Expected clicks as a share of the best list, over {PAGES:,} pages, {SEEDS} runs. Figure: {FIGURE}."
    return Measurement("Items that come and go, in a seasonal world", rows, [note])


def _draw(curves: dict[str, dict[str, np.ndarray]]) -> None:
    with drawing(FIGURE, len(curves)) as panels:
        for ax, (policy, runs) in zip(panels.flat, curves.items()):
            for (name, shares), color in zip(runs.items(), PALETTE):
                points = shares.mean(axis=0).reshape(-1, STEP).mean(axis=1)
                ax.plot(np.arange(STEP, PAGES + 1, STEP) / 1000, points, color=color, label=name)
            for season in range(SEASON, PAGES, SEASON):
                ax.axvline(season / 1000, color="0.8", linewidth=0.8, zorder=0)
            ax.set(title=policy, xlabel="thousand pages", ylim=(0.2, 1.02))
        panels.flat[0].set_ylabel("share of the best clicks")
        panels.flat[0].legend(loc="lower right")
