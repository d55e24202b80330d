"""Fitted position-based models: parameters, tables, predictions, and the worlds they define."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data_frames import html_table, to_frame
from ...kernels import Floats, Ints
from ...worlds import Stochastic
from ...worlds.fitted import from_parameters, write_document
from ..counts import Counts
from .perplexity import ModelArrays, Perplexity, perplexity
from .uncertainty import NOISE, Spread


class Components(NamedTuple):
    """The component of every item and position; only parameters of one component can be compared.

    -1 marks items and positions about which the clicks carry no information.
    """

    items: Ints
    positions: Ints


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted position-based model: item i at position j is clicked with probability attraction[i] * examination[j].

    Every array of items is aligned with ``items`` and ``queries``: where a curve is shared over queries, an item has an
    attraction for each query it was shown for. The largest examination of every component is 1.
    """

    items: tuple[str, ...]
    queries: tuple[str, ...]  # "" if the log has no queries
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
        """Return one entry for every (query, item), in the order of ``items``."""
        columns = {
            "query": self.queries,
            "item": self.items,
            **_columns(self.components.items, self.item_counts, "attraction", self.attraction, self.item_spread),
        }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def curve(self) -> list[dict[str, Any]]:
        """Return one entry for every position."""
        values = _columns(
            self.components.positions, self.position_counts, "examination", self.examination, self.position_spread
        )
        columns = {"position": self.positions, **values}
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def perplexity(self, other: Counts | str | Path | Any) -> Perplexity:
        """Return the perplexity of the model on other counts: 1 for certain predictions, 2 for those of a coin.

        It is 2 to the minus mean log2-likelihood per impression. An event of probability below one in a million, such
        as a click on an item that had none, counts as one in a million; perplexity would be infinite otherwise, and is
        on most logs. Impressions of pairs that the model does not know, or that are in components it cannot compare,
        are left out. The attributes ``impossible`` and ``left_out`` of the result, and its repr, give their numbers.
        """
        return perplexity(self.flat(), other)

    def flat(self) -> ModelArrays:
        """Return the model as a table of items and a table of examination curves."""
        group = np.zeros(len(self.items), np.int64)
        parameters = self.attraction, group, self.examination[None]
        components = self.components.items, self.components.positions[None]
        return ModelArrays(self.items, self.queries, self.positions, *parameters, *components)

    def world(self, query: str | None = None) -> Stochastic:
        """Return the world whose users follow the model, with the items of a query in the order of ``items``.

        Raises ValueError if the model is not identified, or if it has several queries and none is named.
        """
        return from_parameters(self.attraction, self.examination, self.queries, query, identified=self.identified)

    def document(self) -> dict[str, Any]:
        """Return the model as plain values for JSON, one list per column; None stands for NaN."""
        columns = {
            "positions": self.positions,
            "examination": self.examination,
            **_spread_columns("examination", self.position_spread),
            "position_component": self.components.positions,
            "position_impressions": self.position_counts[0],
            "position_clicks": self.position_counts[1],
            "query": self.queries,
            "item": self.items,
            "attraction": self.attraction,
            **_spread_columns("attraction", self.item_spread),
            "item_component": self.components.items,
            "item_impressions": self.item_counts[0],
            "item_clicks": self.item_counts[1],
        }
        scalars = ("method", "prior", "origin", "iterations", "converged", "identified", "warnings")
        return {
            **{name: getattr(self, name) for name in scalars},
            "log_likelihood": _finite_or_none(self.log_likelihood),
            **{name: [_finite_or_none(value) for value in np.asarray(part).tolist()] for name, part in columns.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON and return the path; the file is replaced as a whole or left unchanged.

        :func:`load_model` reads it, and ``bothworlds play --world`` plays in it.
        """
        return write_document(self.document(), path)

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame with one row for every item and position, by query if there are queries.

        Columns: ``query``, ``item``, ``position``; ``attraction`` of the item and ``examination`` of the position, each
        with ``_error``, ``_low`` and ``_high`` (95%); ``item_component``, ``item_impressions`` and ``item_clicks``, and
        the same with ``position_``; ``click_probability``, the product, NaN if the components differ.

        ``library`` is "pandas", "polars" or "arrow"; by default the first of them that is installed. Raises ValueError
        for another name, and ImportError without the library.
        """
        return to_frame(self.pair_columns(), library)

    def pair_columns(self) -> dict[str, list[Any]]:
        """Return the columns of ``to_frame``, items from the first to the last and positions within each."""
        n, m = len(self.items), len(self.positions)
        of_items: dict[str, Any] = {
            "attraction": self.attraction,
            **_spread_columns("attraction", self.item_spread),
            "item_component": self.components.items,
            "item_impressions": self.item_counts[0],
            "item_clicks": self.item_counts[1],
        }
        of_positions: dict[str, Any] = {
            "examination": self.examination,
            **_spread_columns("examination", self.position_spread),
            "position_component": self.components.positions,
            "position_impressions": self.position_counts[0],
            "position_clicks": self.position_counts[1],
        }
        p = np.outer(self.attraction, self.examination)
        # The scale between components is not determined, but 0 is 0 on any scale.
        apart = (self.components.items[:, None] != self.components.positions) & (p > 0.0)
        return {
            "query": [query for query in self.queries for _ in range(m)],
            "item": [item for item in self.items for _ in range(m)],
            "position": list(self.positions) * n,
            **{name: np.repeat(part, m).tolist() for name, part in of_items.items()},
            **{name: np.tile(part, n).tolist() for name, part in of_positions.items()},
            "click_probability": np.where(apart, np.nan, p).ravel().tolist(),
        }

    def _repr_html_(self) -> str:
        """Tables of the examination and of the first items, for notebooks."""
        curve, table = (
            html_table(title, {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}, notes)
            for title, rows, notes in (("positions", self.curve(), ()), (repr(self), self.table(), self.warnings))
        )
        return table + curve

    def __repr__(self) -> str:
        size = f"{len(self.items):,} items at {len(self.positions):,} positions"
        sure = "identified" if self.identified else "not identified"
        return f"<Model: {size}, log-likelihood {self.log_likelihood:,.1f}, {sure}>"


class Models:
    """One model for every query, as a read-only mapping: ``models[query]``, ``for query in models``, ``items()``.

    A model is built each time it is looked up. The parameters of all queries together are arrays: ``item_names``,
    ``queries`` and ``attraction`` are aligned, and ``examination`` has a row for each query.
    """

    def __init__(
        self, make: Callable[[str], Model], arrays: ModelArrays, totals: Mapping[str, Any], names: tuple[str, ...]
    ) -> None:
        self._make, self._arrays, self._totals, self._names = make, arrays, totals, dict.fromkeys(names)

    def __getitem__(self, query: str) -> Model:
        if query not in self._names:
            raise KeyError(query)
        return self._make(query)

    def __contains__(self, query: object) -> bool:
        return query in self._names

    def keys(self) -> tuple[str, ...]:
        """Return the queries."""
        return tuple(self._names)

    def values(self) -> Iterator[Model]:
        """Iterate over the models."""
        return (self[query] for query in self)

    def items(self) -> Iterator[tuple[str, Model]]:
        """Iterate over pairs of a query and its model."""
        return ((query, self[query]) for query in self)

    @property
    def item_names(self) -> tuple[str, ...]:
        """The item of every attraction."""
        return self._arrays.items

    @property
    def queries(self) -> tuple[str, ...]:
        """The query of every attraction."""
        return self._arrays.queries

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions, numbered as in the log."""
        return self._arrays.positions

    @property
    def attraction(self) -> Floats:
        """(n,) the attraction of every item of every query."""
        return self._arrays.attraction

    @property
    def examination(self) -> Floats:
        """(n_queries, n_positions), in the order of the queries; the largest of every row is 1."""
        return self._arrays.examination

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of all counts."""
        return float(np.sum(self._totals["log_likelihood"]))

    @property
    def iterations(self) -> int:
        """The largest number of iterations of any query."""
        return int(np.max(self._totals["iterations"]))

    @property
    def converged(self) -> bool:
        """Whether all models have converged."""
        return bool(np.all(self._totals["converged"]))

    @property
    def identified(self) -> bool:
        """Whether all models are identified."""
        return bool(np.all(self._totals["identified"]))

    @property
    def each_identified(self) -> NDArray[np.bool_]:
        """(n_queries,) whether each model is identified."""
        return np.asarray(self._totals["identified"], dtype=bool)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that concern some queries, with their number and the first three of them."""
        factor = f"{np.exp(1.96 * NOISE):.1f}"
        concerned = {
            "have not converged": ~np.asarray(self._totals["converged"], dtype=bool),
            "are not identified": ~self.each_identified,
            f"have a curve that is noise, with examination typically known only up to a factor above {factor} either "
            "way": np.asarray(self._totals["error"]) > NOISE,
        }
        sentences = []
        for text, queries in concerned.items():
            bad = np.flatnonzero(queries)
            if bad.size:
                names = list(self._names)
                some = ", ".join(repr(names[k]) for k in bad[:3])
                more = f" and {bad.size - 3:,} more" if bad.size > 3 else ""
                sentences.append(f"{bad.size:,} of {len(self):,} queries {text}: {some}{more}.")
        return tuple(sentences)

    def table(self) -> list[dict[str, Any]]:
        """Return one entry for every (query, item)."""
        return [row for model in self.values() for row in model.table()]

    def curve(self) -> list[dict[str, Any]]:
        """Return one entry for every (query, position)."""
        return [{"query": query, **row} for query, model in self.items() for row in model.curve()]

    def perplexity(self, other: Counts | str | Path | Any) -> Perplexity:
        """Return the perplexity of all models together, each on its query. See :meth:`Model.perplexity`."""
        return perplexity(self._arrays, other)

    def flat(self) -> ModelArrays:
        """Return the models as a table of items and a table of examination curves."""
        return self._arrays

    def world(self, query: str | None = None) -> Stochastic:
        """Return the world of one query, which may be omitted if there is only one. See :meth:`Model.world`."""
        if query is None and len(self) > 1:
            raise ValueError(f"there are {len(self):,} models, one for each query; name one: {next(iter(self))!r}")
        if query is not None and query not in self:
            raise ValueError(f"there is no model of query {query!r}")
        return self[next(iter(self)) if query is None else query].world()

    def save(self, path: str | Path) -> Path:
        """Write all models to one JSON file and return the path; the file is replaced as a whole or left unchanged."""
        return write_document({"models": {query: model.document() for query, model in self.items()}}, path)

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame with one row for every query, item and position. See :meth:`Model.to_frame`."""
        parts = [model.pair_columns() for model in self.values()]
        return to_frame({name: [value for part in parts for value in part[name]] for name in parts[0]}, library)

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


def _spread_columns(name: str, spread: Spread) -> dict[str, Floats]:
    return {f"{name}_{part}": getattr(spread, part) for part in spread._fields}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
