"""Evaluation of rankings without propensities, on simulated logs whose truth is known: bias, coverage, what is refused.

A row is a kind of user, a kind of log and a kind of target: ``far`` puts the best items first, ``near`` swaps the first
two results of the last week, ``made`` is sorted by the log itself. Set ``BOTHWORLDS_BENCH_SEEDS`` for another number of
logs (40), and ``BOTHWORLDS_BENCH_PAGES`` for other sizes (20,000 pages). The table is in docs/research/evaluation.md.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np

from bothworlds.clicks.offpolicy.evaluation import Evaluator
from tests.clicks.offpolicy.simulated import Simulated, far_target, made_target, near_target, simulate, target_of

from .measurement import Measurement

SEEDS = int(os.environ.get("BOTHWORLDS_BENCH_SEEDS", "40"))
PAGES = int(os.environ.get("BOTHWORLDS_BENCH_PAGES", "20000"))
DRIFT = np.linspace(0.6, 1.2, 8)
CASES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("pbm", "uniform", "pbm", {}),
    ("pbm", "eps", "pbm", {}),
    ("pbm", "weekly", "pbm", {}),
    ("trust", "weekly", "pbm", {}),
    ("pbm", "weekly", "pbm+level", {"drift": DRIFT}),
    ("cascade", "weekly", "ubm", {}),
    ("cascade", "uniform", "ubm", {}),
    ("dbn", "weekly", "ubm", {}),
    ("dbn", "uniform", "ubm", {}),
    ("pbm", "demand", "pbm", {}),
    ("pbm", "pinned", "pbm", {}),
    ("pbm", "constant", "pbm", {}),
)


def measure() -> Measurement:
    """Return a row for every case and target."""
    rows = []
    for users, log, estimator, options in CASES:
        found: dict[str, list[tuple[Any, ...]]] = {}
        for seed in range(SEEDS):
            simulated = simulate(users, log, seed, pages=PAGES, **options)
            judge = Evaluator(simulated.pages, progress=False)
            for name, lists in targets(simulated, judge).items():
                found.setdefault(name, []).append(_one(simulated, judge, lists, estimator))
        drift = ", drift" if options else ""
        rows += [_row(f"{users}{drift}", log, name, estimator, each) for name, each in found.items()]
    notes = [
        f"{SEEDS} logs a case of {PAGES:,} pages, 20 queries, 8 items, 5 positions, 8 weeks.",
        "Coverage of the change is that of the logs in which an estimator was chosen.",
    ]
    return Measurement("Evaluation of rankings on simulated logs", rows, notes)


def targets(simulated: Simulated, judge: Evaluator) -> dict[str, Any]:
    """Return the lists (Q, m) of the three kinds of target."""
    return {"far": far_target(simulated.users), "near": near_target(simulated), "made": made_target(simulated, judge)}


def _one(simulated: Simulated, judge: Evaluator, lists: Any, estimator: str) -> tuple[Any, ...]:
    truth = simulated.truth(lists)
    result, change = judge.evaluate(target_of(lists)), truth / simulated.logged - 1.0
    estimate = result.estimate(estimator)
    inside = result.lower_bound <= truth <= result.upper_bound if result.shares[3] > 0.0 else np.nan
    covered = float(result.change.low <= change <= result.change.high) if result.chosen else np.nan
    return (
        estimate.value / truth - 1.0,
        float(estimate.lower <= truth <= estimate.upper) if estimate.value == estimate.value else np.nan,
        covered,
        inside,
        float(any("luck of this log" in warning for warning in result.warnings)),
        str(result.chosen),
    )


def _row(users: str, log: str, target: str, estimator: str, found: list[tuple[Any, ...]]) -> dict[str, Any]:
    *numbers, chosen = zip(*found)
    error, covered, change, inside, luck = (np.array(part, float) for part in numbers)

    def mean(values: Any, style: str) -> str:
        known = values[~np.isnan(values)]
        return format(known.mean(), style) if known.size else "-"

    root = np.sqrt(np.nanmean(error**2)) if not np.isnan(error).all() else np.nan
    return {
        "users": users,
        "log": log,
        "target": target,
        "estimator": estimator,
        "bias": mean(error, "+.1%"),
        "RMSE": "-" if np.isnan(root) else f"{root:.1%}",
        "coverage": mean(covered, ".2f"),
        "coverage of the change": mean(change, ".2f"),
        "bounds hold": mean(inside, ".2f"),
        "luck": mean(luck, ".2f"),
        "chosen": ", ".join(f"{name} {number}" for name, number in Counter(chosen).most_common()),
    }
