"""Fitted position-based models: what they say, how well they predict, and the worlds they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints
from ...worlds import Stochastic
from ...worlds.fitted import from_document
from ..fitting.intervals import Spread
from ..fitting.warnings import NOISE
from .file import document_of, write_document
from .perplexity import Flat, Perplexity, perplexity

if TYPE_CHECKING:
    from ..counts import Counts

__all__ = ["Components", "Model", "Models"]


class Components(NamedTuple):
    """Which items and positions can be compared: equal numbers can; -1 for what no click says anything about."""

    items: Ints
    positions: Ints


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted position-based model: item i at position j is clicked with probability attraction[i] * examination[j].

    Every array of items is aligned with ``items`` and ``queries``: where a curve is shared over queries, an item has an
    attraction for each query it was shown for. The largest examination of every component is 1.
    """

    items: tuple[str, ...]
    queries: tuple[str, ...]  # "" where the log knows none
    positions: tuple[int, ...]
    attraction: Floats  # NaN for items that were never shown
    examination: Floats  # NaN for positions that were never shown, or only with items that have no clicks
    log_likelihood: float  # of the counts, without pseudo-counts
    iterations: int
    converged: bool
    identified: bool
    components: Components
    warnings: tuple[str, ...]
    method: str
    prior: float
    origin: str
    item_spread: Spread
    position_spread: Spread
    item_counts: Ints  # (2, n) impressions and clicks
    position_counts: Ints  # (2, m)

    def table(self) -> list[dict[str, Any]]:
        """One entry for every (query, item), in the order of ``items``."""
        columns = {
            "query": self.queries,
            "item": self.items,
            **_columns(self.components.items, self.item_counts, "attraction", self.attraction, self.item_spread),
        }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def curve(self) -> list[dict[str, Any]]:
        """One entry for every position."""
        found = _columns(
            self.components.positions, self.position_counts, "examination", self.examination, self.position_spread
        )
        columns = {"position": self.positions, **found}
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def perplexity(self, other: Counts | str | Path | Any) -> Perplexity:
        """How surprised the model is by a click or a missing click of other counts: 1 not at all, 2 like a coin.

        It is 2 to the minus mean log2-likelihood per impression. What the model holds impossible (a click on an item
        that had none) counts as one in a million: it would be infinite otherwise, and is on most logs. Impressions of
        pairs that the model does not know, or that are in parts it cannot compare, are left out. The number says so
        when printed, and has them as ``impossible`` and ``left_out``.
        """
        return perplexity(self.flat(), other)

    def flat(self) -> Flat:
        """The model as one table of items over one of curves."""
        group = np.zeros(len(self.items), np.int64)
        parameters = self.attraction, group, self.examination[None]
        parts = self.components.items, self.components.positions[None]
        return Flat(self.items, self.queries, self.positions, *parameters, *parts)

    def world(self, query: str | None = None) -> Stochastic:
        """The world in which users follow the model; its items are those of the query, in the order of ``items``."""
        return from_document(document_of(self), query)

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON; :func:`load_model` reads it, and ``bothworlds play --world`` plays in it."""
        return write_document(document_of(self), path)

    def __repr__(self) -> str:
        size = f"{len(self.items):,} items at {len(self.positions):,} positions"
        sure = "identified" if self.identified else "not identified"
        return f"<Model: {size}, log-likelihood {self.log_likelihood:,.1f}, {sure}>"


class Models:
    """One model for every query: ``models[query]``, made when it is looked at; iterating gives the queries.

    It has what a model has, for all queries together: ``items``, ``queries`` and ``attraction`` are aligned, and
    ``examination`` has a row for each query.
    """

    def __init__(self, make: Callable[[str], Model], flat: Flat, totals: Mapping[str, Any], names: tuple[str, ...]):
        self._make, self._flat, self._totals, self._names = make, flat, totals, dict.fromkeys(names)

    def __getitem__(self, query: str) -> Model:
        if query not in self._names:
            raise KeyError(query)
        return self._make(query)

    def __contains__(self, query: object) -> bool:
        return query in self._names

    def keys(self) -> tuple[str, ...]:
        """The queries."""
        return tuple(self._names)

    def values(self) -> Iterator[Model]:
        """The models."""
        return (self[query] for query in self)

    @property
    def items(self) -> tuple[str, ...]:
        """The item of every attraction."""
        return self._flat.items

    @property
    def queries(self) -> tuple[str, ...]:
        """The query of every attraction."""
        return self._flat.queries

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions, as the log numbers them."""
        return self._flat.positions

    @property
    def attraction(self) -> Floats:
        """(n,) of every item of every query."""
        return self._flat.attraction

    @property
    def examination(self) -> Floats:
        """(n_queries, n_positions), in the order of the queries; the largest of every row is 1."""
        return self._flat.examination

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def log_likelihood(self) -> float:
        """Of all counts."""
        return float(np.sum(self._totals["log_likelihood"]))

    @property
    def iterations(self) -> int:
        """The most that any query needed."""
        return int(np.max(self._totals["iterations"]))

    @property
    def converged(self) -> bool:
        """Whether all have."""
        return bool(np.all(self._totals["converged"]))

    @property
    def identified(self) -> bool:
        """Whether all are."""
        return bool(np.all(self._totals["identified"]))

    @property
    def each_identified(self) -> NDArray[np.bool_]:
        """Whether each is."""
        return np.asarray(self._totals["identified"], dtype=bool)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with how many of them."""
        factor = f"{np.exp(1.96 * NOISE):.1f}"
        doubts = {
            "have not converged": ~np.asarray(self._totals["converged"], dtype=bool),
            "are not identified": ~self.each_identified,
            f"have a curve that is noise, with examination typically known only up to a factor above {factor} either "
            "way": np.asarray(self._totals["error"]) > NOISE,
        }
        said = []
        for words, doubted in doubts.items():
            bad = np.flatnonzero(doubted)
            if bad.size:
                names = list(self._names)
                some = ", ".join(repr(names[k]) for k in bad[:3])
                more = f" and {bad.size - 3:,} more" if bad.size > 3 else ""
                said.append(f"{bad.size:,} of {len(self):,} queries {words}: {some}{more}.")
        return tuple(said)

    def table(self) -> list[dict[str, Any]]:
        """One entry for every (query, item)."""
        return [row for model in self.values() for row in model.table()]

    def curve(self) -> list[dict[str, Any]]:
        """One entry for every (query, position)."""
        return [{"query": query, **row} for query in self for row in self[query].curve()]

    def perplexity(self, other: Counts | str | Path | Any) -> Perplexity:
        """That of all models together, each for its own query."""
        return perplexity(self._flat, other)

    def flat(self) -> Flat:
        """The models as one table of items over one of curves."""
        return self._flat

    def world(self, query: str | None = None) -> Stochastic:
        """The world of one query."""
        if query is None and len(self) > 1:
            raise ValueError(f"there are {len(self):,} models, one for each query; name one: {next(iter(self))!r}")
        if query is not None and query not in self:
            raise ValueError(f"there is no model of query {query!r}")
        return self[next(iter(self)) if query is None else query].world()

    def save(self, path: str | Path) -> Path:
        """Write all models to one JSON file."""
        models = {query: document_of(self[query]) for query in self}
        return write_document({"models": models}, path)

    def __repr__(self) -> str:
        return f"<Models: {len(self):,} queries, log-likelihood {self.log_likelihood:,.1f}>"


def _columns(component: Ints, counts: Ints, name: str, values: Floats, spread: Spread) -> dict[str, list[Any]]:
    return {
        "component": component.tolist(),
        "impressions": counts[0].tolist(),
        "clicks": counts[1].tolist(),
        name: values.tolist(),
        "standard_error": spread.error.tolist(),
        "low": spread.low.tolist(),
        "high": spread.high.tolist(),
    }
