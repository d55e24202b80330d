"""Maximising the likelihood of every group, by Newton's method or EM, and normalising the parameters."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints
from ...statistics.rank_one.batch import GroupFits, em_each, make_group_fits, newton_each, variances_each
from .tables import Connectivity, Design, smoothed

PASSES = 100_000  # of EM at most, unless their number is given
TOLERANCES = {"newton": 1e-16, "em": 1e-10}
CHUNK = 20_000  # pairs per thread at least


class Settings(NamedTuple):
    """The options of a fit."""

    method: str = "newton"
    iterations: int | None = None
    prior: float = 0.0
    ordered: bool = False
    first_anchor: bool = False  # standard errors are for examination 1 at the first position, not at the largest


def make_fits(design: Design) -> GroupFits:
    """Return the arrays for the parameters and the work of all fits of a design."""
    return make_group_fits(len(design.items), len(design.groups), len(design.positions))


def maximise(design: Design, links: Connectivity, settings: Settings, fits: GroupFits, warm: bool = False) -> None:
    """Fit every group; ``fits.a`` and ``fits.b`` then hold the normalised logs of attraction and examination.

    With ``warm``, the fit starts from the values they hold.
    """
    design, tolerance = smoothed(design, settings.prior), TOLERANCES[settings.method]

    def newton(shown: Floats, clicked: Floats, starts: Ints, part: GroupFits) -> None:
        newton_each(shown, clicked, starts, settings.ordered, warm, tolerance, part)

    def em(shown: Floats, clicked: Floats, starts: Ints, part: GroupFits) -> None:
        passes, end = (PASSES, tolerance) if settings.iterations is None else (settings.iterations, -1.0)
        sums = np.empty((4, max(np.diff(starts).max(), shown.shape[1])))
        em_each(shown, clicked, starts, passes, end, part, sums)

    np.copyto(fits.joined, links.identified)
    _in_threads(design, fits, newton if settings.method == "newton" else em)
    if settings.method == "em" and settings.iterations is None:
        _set_zeros(design, fits)
    normalise(design, links, fits)


def _set_zeros(design: Design, fits: GroupFits) -> None:
    """Set attraction and examination without clicks to 0, the limit that EM approaches but does not reach."""
    shown, clicked = (np.add.reduceat(table, design.starts[:-1]) for table in (design.shown, design.clicked))
    fits.a[(design.shown.sum(axis=1) > 0.0) & (design.clicked.sum(axis=1) == 0.0)] = -np.inf
    fits.b[(shown > 0.0) & (clicked == 0.0) & clicked.any(axis=1, keepdims=True)] = -np.inf


def normalise(design: Design, links: Connectivity, fits: GroupFits) -> None:
    """Make the largest examination of every component 1, in place."""
    group, position = np.nonzero(links.of_positions >= 0)
    label = links.of_positions[group, position]
    top = np.full(fits.b.shape, -np.inf)
    np.maximum.at(top, (group, label), fits.b[group, position])
    fits.b[group, position] -= top[group, label]
    known = links.of_rows >= 0
    fits.a[known] += top[design.group[known], links.of_rows[known]]
    np.minimum(fits.a, 0.0, out=fits.a)


def anchors(links: Connectivity, fits: GroupFits, first: bool = False) -> Ints:
    """(G, m) for every position, the one of examination 1 in its component, or the first with clicks; else -1."""
    group, position = np.nonzero((links.of_positions >= 0) & (fits.b > -np.inf if first else fits.b == 0.0))
    best = np.full(fits.b.shape, fits.b.shape[1], dtype=np.int64)
    np.minimum.at(best, (group, links.of_positions[group, position]), position)
    best = np.where(best < fits.b.shape[1], best, -1)[np.arange(len(best))[:, None], links.of_positions]
    return np.where(links.of_positions >= 0, best, -1)


def log_variances(design: Design, links: Connectivity, settings: Settings, fits: GroupFits) -> tuple[Floats, Floats]:
    """Return the variances of log attraction (R,) and log examination (G, m), from the Fisher information."""
    design = smoothed(design, settings.prior)
    anchor = anchors(links, fits, settings.first_anchor)
    of_items, of_positions = np.empty(fits.a.size), np.empty(fits.b.shape)

    def each(shown: Floats, clicked: Floats, starts: Ints, part: GroupFits) -> None:
        # The work arrays of a thread are views, whose offsets locate its rows and groups.
        first, group = _offset(part.a, fits.a), _offset(part.b[:, 0], fits.b[:, 0])
        rows, groups = slice(first, first + part.a.size), slice(group, group + len(part.b))
        variances_each(shown, clicked, starts, anchor[groups], part, of_items[rows], of_positions[groups])

    _in_threads(design, fits, each)
    return of_items, of_positions


def log_likelihoods(design: Design, fits: GroupFits) -> Floats:
    """(G,) the log-likelihood of the counts of every group."""
    shown, clicked = (table[design.row, design.position] for table in (design.shown, design.clicked))
    group = design.group[design.row]
    u = fits.a[design.row] + fits.b[group, design.position]
    missed = shown - clicked
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = np.where(clicked > 0.0, clicked * u, 0.0)
        log_miss = np.where(u < -1.0, np.log1p(-np.exp(u)), np.log(-np.expm1(u)))
        likelihood += np.where(missed > 0.0, missed * log_miss, 0.0)
    return np.bincount(group, likelihood, len(design.groups)).astype(np.float64)


def _offset(part: Floats, whole: Floats) -> int:
    away = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return int(away // whole.strides[0])


def _in_threads(design: Design, fits: GroupFits, work: Callable[[Floats, Floats, Ints, GroupFits], None]) -> None:
    """Run ``work`` on ranges of groups in several threads; the kernels release the GIL."""
    m, groups = len(design.positions), len(design.groups)
    workers = min(os.cpu_count() or 1, max(1, design.shown.size // CHUNK), groups)
    cuts = np.unique(np.searchsorted(design.starts, np.linspace(0, len(design.items), 4 * workers + 1)))
    cuts = np.unique(np.concatenate([[0], cuts[cuts <= groups], [groups]])) if workers > 1 else np.array([0, groups])

    def run(span: tuple[int, int]) -> None:
        first, last = (int(design.starts[g]) for g in span)
        own = make_group_fits(0, 0, m)
        part = fits._replace(
            a=fits.a[first:last],
            b=fits.b[slice(*span)],
            work_a=np.zeros((3, last - first)),
            curvature=fits.curvature[first:last],
            fitted=fits.fitted[first:last],
            block=fits.block[slice(*span)],
            joined=fits.joined[slice(*span)],
            iterations=fits.iterations[slice(*span)],
            converged=fits.converged[slice(*span)],
            work_b=own.work_b,
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
