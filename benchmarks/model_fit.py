"""Fitting the position-based model to counts of one to ten thousand queries."""

from __future__ import annotations

import time

import numpy as np

from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query

from .measurement import Measurement

REPEATS = 5
CASES = {  # name: queries, impressions per pair, one curve per query
    "1 query": (1, 350, False),
    "60 queries, one curve": (60, 350, False),
    "60 queries, 1,000 times the pages": (60, 350_000, False),
    "1,000 queries, one curve": (1_000, 35, False),
    "10,000 queries, one curve": (10_000, 35, False),
    "1,000 queries, a curve each": (1_000, 350, True),
}


def simulated_counts(queries: int, impressions: int) -> Counts:
    """Return counts of ten items at ten positions for every query, clicked as the model predicts."""
    rng = np.random.default_rng(0)
    alpha, beta = rng.uniform(0.02, 0.8, (queries, 10)), 1.0 / np.arange(1, 11)
    shown = rng.poisson(impressions, (queries, 10, 10))
    clicked = rng.binomial(shown, alpha[:, :, None] * beta)
    q, i, j = np.nonzero(shown)
    names = tuple(map(str, range(10))), tuple(map(str, range(queries)))
    return Counts(*names, tuple(range(1, 11)), q, i, j, shown[q, i, j], clicked[q, i, j])


def best_time(counts: Counts, per_query: bool = False) -> float:
    """Return the processor seconds of a fit with standard errors: the best of ``REPEATS``, after compilation."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        (fit_each_query if per_query else fit)(counts)
        times.append(time.process_time() - started)
    return min(times)


def measure() -> Measurement:
    """Return one row per number of queries."""
    fit(simulated_counts(1, 100))
    rows = []
    for name, (queries, impressions, per_query) in CASES.items():
        counts = simulated_counts(queries, impressions)
        seconds = best_time(counts, per_query)
        rows.append(
            {
                "case": name,
                "pages": f"{int(counts.shown.sum()) // 10:,}",
                "triples": len(counts),
                "ms": seconds * 1e3,
                "ns per triple": seconds * 1e9 / len(counts),
                "steps": fit(counts, intervals=False).iterations,
            }
        )
    notes = ["Processor time. The cost per (query, item, position) does not depend on the number of pages."]
    return Measurement("Fitting the position-based model to counts", rows, notes)
