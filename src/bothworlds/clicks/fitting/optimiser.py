"""The maximum of the likelihood, group by group, in compiled code, and its normal form."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints
from ...statistics.rank_one.batch import Bench, em_each, make_bench, newton_each, variances_each
from .design import Design, Links, smoothed

__all__ = ["PASSES", "Settings", "anchors", "maximise", "normalise", "start", "value", "variances"]

PASSES = 100_000  # of EM, if it does not converge before
TOLERANCES = {"newton": 1e-16, "em": 1e-10}
CHUNK = 20_000  # pairs that are worth a thread of their own


class Settings(NamedTuple):
    """How to fit."""

    method: str = "newton"
    iterations: int | None = None
    prior: float = 0.0
    ordered: bool = False


def start(design: Design) -> Bench:
    """Room for all fits of a design."""
    return make_bench(len(design.items), len(design.groups), len(design.positions))


def maximise(design: Design, links: Links, settings: Settings, bench: Bench, warm: bool = False) -> None:
    """Fit every group; on the bench are then the logs of attraction and examination in their normal form."""
    design, tolerance = smoothed(design, settings.prior), TOLERANCES[settings.method]

    def newton(shown: Floats, clicked: Floats, starts: Ints, part: Bench) -> None:
        newton_each(shown, clicked, starts, settings.ordered, warm, tolerance, part)

    def em(shown: Floats, clicked: Floats, starts: Ints, part: Bench) -> None:
        passes, end = (PASSES, tolerance) if settings.iterations is None else (settings.iterations, -1.0)
        sums = np.empty((4, max(np.diff(starts).max(), shown.shape[1])))
        em_each(shown, clicked, starts, passes, end, part, sums)

    np.copyto(bench.joined, links.identified)
    _in_threads(design, bench, newton if settings.method == "newton" else em)
    if settings.method == "em" and settings.iterations is None:
        _to_zero(design, bench)
    normalise(design, links, bench)


def _to_zero(design: Design, bench: Bench) -> None:
    """Put what has no clicks where EM takes it in the end, but would never arrive."""
    shown, clicked = (np.add.reduceat(table, design.starts[:-1]) for table in (design.shown, design.clicked))
    bench.a[(design.shown.sum(axis=1) > 0.0) & (design.clicked.sum(axis=1) == 0.0)] = -np.inf
    bench.b[(shown > 0.0) & (clicked == 0.0) & clicked.any(axis=1, keepdims=True)] = -np.inf


def normalise(design: Design, links: Links, bench: Bench) -> None:
    """Make the largest examination of every component 1, in place."""
    group, position = np.nonzero(links.of_positions >= 0)
    label = links.of_positions[group, position]
    top = np.full(bench.b.shape, -np.inf)
    np.maximum.at(top, (group, label), bench.b[group, position])
    bench.b[group, position] -= top[group, label]
    known = links.of_rows >= 0
    bench.a[known] += top[design.group[known], links.of_rows[known]]
    np.minimum(bench.a, 0.0, out=bench.a)


def anchors(links: Links, bench: Bench) -> Ints:
    """(G, m) for every position the one of its component that has examination 1; -1 for positions without clicks."""
    group, position = np.nonzero((links.of_positions >= 0) & (bench.b == 0.0))
    best = np.full(bench.b.shape, -1, dtype=np.int64)
    best[group[::-1], links.of_positions[group, position][::-1]] = position[::-1]
    rows = np.arange(len(best))[:, None]
    return np.where(links.of_positions >= 0, best[rows, links.of_positions], -1)


def variances(design: Design, links: Links, settings: Settings, bench: Bench) -> tuple[Floats, Floats]:
    """Variances of the logs of attraction (R,) and examination (G, m), by the information in the counts."""
    design = smoothed(design, settings.prior)
    anchor, of_items, of_positions = anchors(links, bench), np.empty(bench.a.size), np.empty(bench.b.shape)

    def each(shown: Floats, clicked: Floats, starts: Ints, part: Bench) -> None:
        # The views of a thread say where in the whole it works.
        first, group = _offset(part.a, bench.a), _offset(part.b[:, 0], bench.b[:, 0])
        rows, groups = slice(first, first + part.a.size), slice(group, group + len(part.b))
        variances_each(shown, clicked, starts, anchor[groups], part, of_items[rows], of_positions[groups])

    _in_threads(design, bench, each)
    return of_items, of_positions


def value(design: Design, bench: Bench) -> Floats:
    """(G,) the log-likelihood of the counts."""
    shown, clicked = (table[design.row, design.position] for table in (design.shown, design.clicked))
    group = design.group[design.row]
    u = bench.a[design.row] + bench.b[group, design.position]
    missed = shown - clicked
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = np.where(clicked > 0.0, clicked * u, 0.0)
        log_miss = np.where(u < -1.0, np.log1p(-np.exp(u)), np.log(-np.expm1(u)))
        likelihood += np.where(missed > 0.0, missed * log_miss, 0.0)
    return np.bincount(group, likelihood, len(design.groups)).astype(np.float64)


def _offset(part: Floats, whole: Floats) -> int:
    away = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return int(away // whole.strides[0])


def _in_threads(design: Design, bench: Bench, work: Callable[[Floats, Floats, Ints, Bench], None]) -> None:
    """Groups in stretches, one after the other in every thread: kernels let go of the interpreter."""
    m, groups = len(design.positions), len(design.groups)
    workers = min(os.cpu_count() or 1, max(1, design.shown.size // CHUNK), groups)
    cuts = np.unique(np.searchsorted(design.starts, np.linspace(0, len(design.items), 4 * workers + 1)))
    cuts = np.unique(np.concatenate([[0], cuts[cuts <= groups], [groups]])) if workers > 1 else np.array([0, groups])

    def run(span: tuple[int, int]) -> None:
        first, last = (int(design.starts[g]) for g in span)
        own = make_bench(0, 0, m)
        part = bench._replace(
            a=bench.a[first:last],
            b=bench.b[slice(*span)],
            items=np.zeros((3, last - first)),
            curvature=bench.curvature[first:last],
            fitted=bench.fitted[first:last],
            block=bench.block[slice(*span)],
            joined=bench.joined[slice(*span)],
            iterations=bench.iterations[slice(*span)],
            converged=bench.converged[slice(*span)],
            room=own.room,
            edges=own.edges,
            resistance=own.resistance,
        )
        starts = design.starts[span[0] : span[1] + 1] - first
        work(design.shown[first:last], design.clicked[first:last], starts, part)

    spans = list(zip(cuts[:-1].tolist(), cuts[1:].tolist()))
    if len(spans) == 1:
        return run(spans[0])
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, spans))
