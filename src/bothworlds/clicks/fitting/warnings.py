"""Warnings about a fit: convergence, identification, noise, the order of positions, parameters at the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtri

from ...kernels import Ints
from ...statistics.rank_one.batch import LIMIT
from ..model.model import Model
from ..model.uncertainty import NOISE, typical_errors


def fit_warnings(model: Model, pieces: Ints) -> tuple[str, ...]:
    """Return all warnings about a model; ``pieces`` (m,) is a row of ``Connectivity.pieces``."""
    sentences = (*_convergence(model), *_identification(model, pieces), *_noise(model), *_order(model), *_limits(model))
    return tuple(sentences)


def _convergence(model: Model) -> Iterator[str]:
    if not model.converged and model.method == "em":
        yield f"EM was stopped after {model.iterations} passes, short of the maximum of the likelihood."
    elif not model.converged:
        yield f"Newton's method did not converge in {model.iterations} steps."


def _identification(model: Model, pieces: Ints) -> Iterator[str]:
    if model.identified:
        return
    labels = model.components.positions
    count = int(labels.max(initial=-1)) + 1
    if not count:
        yield "Nothing was clicked: there is no curve."
        return
    lost = [p for p, label, shown in zip(model.positions, labels, model.position_counts[0]) if label < 0 < shown]
    apart = [position for position, piece in zip(model.positions, pieces) if piece > 0]
    if lost:
        yield (
            f"Not identified: at {_list_of('position', lost)} there were no clicks and no items that have clicks "
            "elsewhere, so the cause may be the position or the items."
        )
    if count > 1:
        yield (
            f"Not identified: there are {count} groups of items and positions that were never shown together, and "
            "within each the largest examination is set to 1. Values of different groups cannot be compared: "
            f"{'; '.join(_group(model, k) for k in range(min(count, 4)))}{'; ...' if count > 4 else ''}."
        )
    elif apart:
        yield (
            f"Not identified: {_list_of('position', apart)} can only be compared with the others through items "
            "that were clicked every time they were shown, which gives a bound and not a value."
        )


def _group(model: Model, k: int) -> str:
    items = [model.items[i] for i in np.flatnonzero(model.components.items == k)[:4]]
    more = int((model.components.items == k).sum()) - len(items[:3])
    names = [*map(repr, items[:3]), *([f"{more:,} more"] if more else [])]
    positions = [p for p, label in zip(model.positions, model.components.positions) if label == k]
    return f"{', '.join(names)} at {_list_of('position', positions)}"


def _list_of(noun: str, values: Sequence[int]) -> str:
    listed = ", ".join(map(str, values[:10])) + (", ..." if len(values) > 10 else "")
    return f"{noun}{'s' if len(values) > 1 else ''} {listed}"


def _noise(model: Model) -> Iterator[str]:
    """A curve is noise if its typical position has a large standard error."""
    error = float(typical_errors(model.position_spread.error, model.examination))
    clicks = int(model.position_counts[1].sum())
    if error > NOISE:
        factor = float(np.exp(1.96 * min(error, 5.0)))
        known = f"known only up to a factor of {factor:.1f} either way" if factor < 100.0 else "not known at all"
        yield f"This curve is noise: with {clicks:,} clicks, examination is typically {known}."


def _order(model: Model) -> Iterator[str]:
    """Whether a position other than the first has the largest examination."""
    beta = model.examination
    known = np.flatnonzero(~np.isnan(beta))
    if not known.size or not model.identified or beta[known[0]] >= 1.0:
        return
    first, best = known[0], known[np.argmax(beta[known])]
    sure = model.position_spread.high[first] < 1.0
    if beta[first] > 0.0:
        # Bonferroni's correction: the more positions there are, the more the best of them exceeds the first by chance.
        margin = ndtri(1.0 - 0.025 / (known.size - 1)) * model.position_spread.error[first] / beta[first]
        sure = np.log(beta[first]) + margin < 0.0
    if not sure and beta[first] > 0.95:
        return
    chance = "beyond" if sure else "but within"
    yield (
        f"Position {model.positions[best]} is examined more than position {model.positions[first]} "
        f"(1 against {beta[first]:.2f}), {chance} what chance explains."
    )


def _limits(model: Model) -> Iterator[str]:
    with np.errstate(divide="ignore"):
        full = np.log(model.attraction) > LIMIT
    if full.any():
        yield (
            f"{int(full.sum()):,} of {full.size:,} items have attraction 1, the most there is; they have one-sided "
            "intervals and no standard error."
        )
