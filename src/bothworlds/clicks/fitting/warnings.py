"""Warnings about fits: convergence, starts, identification, noise, the order of positions, items at the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ...kernels import Ints
from ..model.model import ClickModel
from .box import Maximum

DISAGREEMENT = 1e-3  # nats between two starts that are reported
NOISE = 0.25  # if the typical standard error of log examination is larger, a curve is called noise


def curve_warnings(model: ClickModel, shown: Ints, apart: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return all warnings about a position-based model.

    ``shown`` (m,) has the impressions of positions, and ``apart`` those that only pairs clicked every time connect.
    """
    parts = _convergence(model), _identification(model, shown, apart), _noise(model), _order(model)
    return tuple(sentence for part in parts for sentence in part)


def browsing_warnings(model: ClickModel, shown: Ints, apart: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return all warnings about a user browsing model, whose positions have a last click above."""
    unseen = [label for label, here in zip(model.labels["examination"], shown) if not here]
    sentences = [*_convergence(model)]
    if unseen:
        sentences.append(f"{len(unseen)} of {shown.size} columns, such as {unseen[0]}, were never seen.")
    return (*sentences, *_identification(model, shown, apart))


def box_warnings(best: Maximum) -> tuple[str, ...]:
    """Return warnings if a fit has not converged, or if its starts have ended at different maxima."""
    apart, sentences = max(best.starts) - min(best.starts), []
    if not best.converged:
        sentences.append(
            f"The fit did not converge in {best.steps} steps; a further one may gain {best.gain:.2g} nats."
        )
    if apart > DISAGREEMENT:
        sentences.append(f"{len(best.starts)} starts ended {apart:.3g} nats apart; the best of them is reported.")
    return tuple(sentences)


def undetermined(found: tuple[Any, NDArray[np.bool_]] | None, free: NDArray[np.bool_], known: int) -> tuple[str, ...]:
    """Return a warning about free parameters of a chain that are not determined, of so many that have values."""
    if found is None:
        return ("A query has too many parameters for standard errors: no intervals, and no test of identification.",)
    lost = int((free & ~found[1]).sum())
    if not lost:
        return ()
    return (
        f"Not identified: {lost:,} of {known:,} parameters cannot be distinguished from others and have no intervals; "
        "their values are one choice of many.",
    )


def _convergence(model: ClickModel) -> Iterator[str]:
    if not model.converged and model.method == "em":
        yield f"EM was stopped after {model.iterations} passes, short of the maximum of the likelihood."
    elif not model.converged:
        yield f"Newton's method did not converge in {model.iterations} steps."


def _identification(model: ClickModel, shown: Ints, apart: NDArray[np.bool_]) -> Iterator[str]:
    if model.identified:
        return
    names, labels = model.labels["examination"], model.components["columns"]
    count = int(labels.max(initial=-1)) + 1
    if not count:
        yield "Nothing was clicked: there is no curve."
        return
    lost = [name for name, label, here in zip(names, labels, shown) if label < 0 < here]
    if lost:
        yield (
            f"Not identified: at {_list_of('position', lost)} there were no clicks and no items that have clicks "
            "elsewhere, so the cause may be the position or the items."
        )
    if count > 1:
        yield (
            f"Not identified: there are {count} groups of items and positions that were never shown together, and "
            "within each one examination is set to 1. Values of different groups cannot be compared: "
            f"{'; '.join(_group(model, k) for k in range(min(count, 4)))}{'; ...' if count > 4 else ''}."
        )
    elif apart.any():
        far = [name for name, far in zip(names, apart) if far]
        yield (
            f"Not identified: {_list_of('position', far)} can only be compared with the others through items "
            "that were clicked every time they were shown, which gives a bound and not a value."
        )


def _group(model: ClickModel, k: int) -> str:
    own = np.flatnonzero(model.components["items"] == k)
    items = [model.items[i] for i in own[:3]]
    names = [*map(repr, items), *([f"{own.size - len(items):,} more"] if own.size > len(items) else [])]
    positions = [p for p, label in zip(model.labels["examination"], model.components["columns"]) if label == k]
    return f"{', '.join(names)} at {_list_of('position', positions)}"


def _list_of(noun: str, values: Sequence[str]) -> str:
    listed = ", ".join(values[:10]) + (", ..." if len(values) > 10 else "")
    return f"{noun}{'s' if len(values) > 1 else ''} {listed}"


def _noise(model: ClickModel) -> Iterator[str]:
    """A curve is noise if the median standard error of log examination is large."""
    examination = model.shared_parameters["examination"]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = examination.error / examination.value
    known = errors[np.isfinite(errors) & (errors > 0.0)]
    error = float(np.median(known)) if known.size else 0.0
    if error > NOISE:
        factor = float(np.exp(1.96 * min(error, 5.0)))
        how = f"known only up to a factor of {factor:.1f} either way" if factor < 100.0 else "not known at all"
        yield f"This curve is noise: with {int(model.item_counts[1].sum()):,} clicks, examination is typically {how}."


def _order(model: ClickModel) -> Iterator[str]:
    """Whether a position other than the first has the largest examination."""
    beta, error, _, high = model.shared_parameters["examination"]
    known = np.flatnonzero(~np.isnan(beta))
    if not known.size or not model.identified or beta[known[0]] >= 1.0:
        return
    first, best = known[0], known[np.argmax(beta[known])]
    # Bonferroni's correction: the more positions there are, the more the best of them exceeds the first by chance.
    margin = ndtri(1.0 - 0.025 / (known.size - 1)) * error[first] / beta[first] if beta[first] > 0.0 else 0.0
    if high[first] < 1.0 if beta[first] <= 0.0 else np.log(beta[first]) + margin < 0.0:
        yield (
            f"Position {model.positions[best]} is examined more than position {model.positions[first]} "
            f"(1 against {beta[first]:.2f}), beyond what chance explains."
        )
