"""The targets of an evaluation, as marginals: the probability of every item at every position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels import Floats
from ..reading.memory import label_text
from .impressions import Impressions


@dataclass(frozen=True, eq=False)
class Target:
    """A target; ``marginals`` (2, n_items, n_positions) holds its marginals for each fold.

    The two differ only for a policy, whose marginals for a fold are those after training on the other fold.
    """

    label: str
    marginals: Floats
    unknown: Floats  # (n_positions,) probability of items that the log never shows
    learned: bool = False
    notes: tuple[str, ...] = ()


def from_ranking(ranking: Sequence[str], impressions: Impressions) -> Target:
    """Return the target that always shows one list, given as item names in the order of the log's positions."""
    names = [label_text(name) for name in ranking]
    n, m = impressions.shape
    if len(names) != m:
        raise ValueError(
            f"the ranking has {len(names)} items and the log {m} positions; give one item per position, or read "
            "the log with fewer positions"
        )
    if len(set(names)) < m:
        raise ValueError(f"a ranking must not repeat an item; got {', '.join(names)}")
    missing = [name for name in names if name not in impressions.items]
    if missing:
        raise ValueError(f"the log never shows item {missing[0]!r}; its first items are {_some(impressions.items)}")
    x = np.zeros((2, n, m))
    for j, name in enumerate(names):
        x[:, impressions.items.index(name), j] = 1.0
    return Target(" > ".join(names), x, np.zeros(m))


def from_marginals(marginals: Mapping[str, Sequence[float]], impressions: Impressions) -> Target:
    """Return the target of a random ranking, given the probabilities of every item at each of the log's positions."""
    n, m = impressions.shape
    x, unknown = np.zeros((n, m)), np.zeros(m)
    index = {item: i for i, item in enumerate(impressions.items)}
    for name, row in marginals.items():
        probabilities = _probabilities(name, row, m)
        if label_text(name) in index:
            x[index[label_text(name)]] += probabilities
        else:
            unknown += probabilities
    _check_sums(x, unknown, impressions)
    return Target("marginals", np.stack([x, x]), unknown)


def _probabilities(name: Any, row: Sequence[float], m: int) -> Floats:
    try:
        values = np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the marginals of item {name!r} must be numbers; got {row!r}") from error
    if values.shape != (m,):
        raise ValueError(f"item {name!r} must have a probability for each of {m} positions; got shape {values.shape}")
    if not ((values >= 0.0) & (values <= 1.0)).all() or values.sum() > 1.0 + 1e-6:
        raise ValueError(
            f"item {name!r} must have probabilities that add up to at most 1 over positions; got {values.tolist()}"
        )
    return values


def _check_sums(x: Floats, unknown: Floats, impressions: Impressions) -> None:
    for position, total in zip(impressions.positions, (x.sum(axis=0) + unknown).tolist()):
        if abs(total - 1.0) > 1e-6:
            raise ValueError(
                f"marginals must add up to 1 over the items of every position; at position {position} they add up to "
                f"{total:.6g}"
            )


def _some(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(map(repr, names[:limit])) + (", ..." if len(names) > limit else "")
