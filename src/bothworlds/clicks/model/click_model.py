"""Fitted click models other than the position-based one: parameters, tables, files, worlds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data_frames import to_frame
from ...kernels import Floats, Ints
from ...worlds import World
from ...worlds.fitted import users_of_click_model, write_document
from .names import MODELS
from .uncertainty import Spread


class Estimates(NamedTuple):
    """The values of a parameter, NaN where the log does not determine them, with standard errors and intervals."""

    values: Floats
    spread: Spread


def without_intervals(values: Floats) -> Estimates:
    """Return values without standard errors."""
    return Estimates(values, Spread(*np.full((3, values.size), np.nan)))


@dataclass(frozen=True, eq=False)
class ClickModel:
    """A fitted click model.

    ``item_parameters`` has, by name, an entry for every (query, item), aligned with ``items`` and ``queries``;
    ``shared_parameters`` has those that belong to positions or to all, aligned with ``labels`` of the same name.
    """

    model: str  # a name of bothworlds.clicks.model.names
    items: tuple[str, ...]
    queries: tuple[str, ...]  # "" if the log has no queries
    positions: tuple[int, ...]
    item_parameters: Mapping[str, Estimates]
    shared_parameters: Mapping[str, Estimates]
    labels: Mapping[str, tuple[str, ...]]
    item_counts: Ints  # (2, n) impressions and clicks
    log_likelihood: float  # of the log, without pseudo-counts
    pages: int | None
    method: str
    prior: float
    iterations: int
    converged: bool
    gain: float  # what a further Newton step would gain, at most
    identified: bool
    starts: tuple[float, ...] = ()  # the objective that each start reached
    impossible: int = 0  # clicks of the log that are impossible in the model, each counted as one in a million
    warnings: tuple[str, ...] = ()
    origin: str = ""
    components: Mapping[str, Ints] = field(default_factory=dict)  # of items and columns, for the user browsing model

    @property
    def title(self) -> str:
        """The long name of the model."""
        return MODELS[self.model].title

    @property
    def attraction(self) -> Floats:
        """(n,) the attraction of every (query, item): click rates given examination, as this model understands it."""
        return self._values(self.item_parameters, "attraction")

    @property
    def satisfaction(self) -> Floats:
        """(n,) the probability that a click on the item ends the session, for ``sdbn`` and ``dbn``."""
        return self._values(self.item_parameters, "satisfaction")

    def shared(self, name: str) -> Floats:
        """Return the values of a shared parameter, in the order of its labels."""
        return self._values(self.shared_parameters, name)

    def _values(self, parameters: Mapping[str, Estimates], name: str) -> Floats:
        if name not in parameters:
            known = [*self.item_parameters, *self.shared_parameters]
            raise ValueError(f"the model {self.model} has no {name}; it has {', '.join(known)}")
        return parameters[name].values

    def table(self) -> list[dict[str, Any]]:
        """Return one entry for every (query, item), in the order of ``items``.

        ``low`` and ``high`` are the limits of the first parameter of items, those of others have its name before them.
        """
        columns: dict[str, Any] = {"query": self.queries, "item": self.items}
        columns |= {"impressions": self.item_counts[0].tolist(), "clicks": self.item_counts[1].tolist()}
        for k, (name, (values, spread)) in enumerate(self.item_parameters.items()):
            before = f"{name}_" if k else ""
            columns |= {name: values.tolist(), f"{before}standard_error": spread.error.tolist()}
            columns |= {f"{before}low": spread.low.tolist(), f"{before}high": spread.high.tolist()}
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def to_frame(self, library: str | None = None) -> Any:
        """Return the entries of ``table`` as a data frame. See :meth:`Model.to_frame` for ``library``."""
        rows = self.table()
        return to_frame({name: [row[name] for row in rows] for name in (rows[0] if rows else ())}, library)

    def shared_table(self) -> list[dict[str, Any]]:
        """Return one entry for every shared parameter."""
        return [
            {"parameter": name, "of": label, "value": value, "standard_error": error, "low": low, "high": high}
            for name, (values, spread) in self.shared_parameters.items()
            for label, value, error, low, high in zip(
                self.labels[name], values.tolist(), *(part.tolist() for part in spread)
            )
        ]

    def world(self, query: str | None = None) -> World:
        """Return the world whose users follow the model, with the items of a query in the order of ``items``.

        Items whose parameters the log does not determine are left out. Raises ValueError for a model that is not
        identified, one that lacks a parameter that belongs to all items, and one of several queries if none is named.
        """
        return users_of_click_model(self.document(), query)

    def document(self) -> dict[str, Any]:
        """Return the model as a dictionary of JSON values; unknown numbers are None."""
        scalars = ("model", "method", "prior", "origin", "iterations", "converged", "identified", "impossible", "pages")
        lists = {"starts": self.starts, "warnings": self.warnings, "positions": self.positions}
        return {
            **{name: getattr(self, name) for name in scalars},
            **{name: list(values) for name, values in lists.items()},
            "log_likelihood": _number(self.log_likelihood),
            "gain": _number(self.gain),
            "query": list(self.queries),
            "item": list(self.items),
            "item_impressions": self.item_counts[0].tolist(),
            "item_clicks": self.item_counts[1].tolist(),
            "item_parameters": {name: _columns(one) for name, one in self.item_parameters.items()},
            "shared_parameters": {
                name: {"of": list(self.labels[name]), **_columns(one)} for name, one in self.shared_parameters.items()
            },
            "components": {name: labels.tolist() for name, labels in self.components.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON and return the path; :func:`load_model` reads it."""
        return write_document(self.document(), path)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ClickModel:
        """Return the model of a document; raises KeyError or TypeError if it is incomplete."""
        shared = document["shared_parameters"]
        return cls(
            model=str(document["model"]),
            items=tuple(document["item"]),
            queries=tuple(document["query"]),
            positions=tuple(document["positions"]),
            item_parameters={name: _estimates(one) for name, one in document["item_parameters"].items()},
            shared_parameters={name: _estimates(one) for name, one in shared.items()},
            labels={name: tuple(one["of"]) for name, one in shared.items()},
            item_counts=np.array([document["item_impressions"], document["item_clicks"]], np.int64),
            log_likelihood=_float(document["log_likelihood"]),
            pages=document["pages"],
            method=str(document["method"]),
            prior=float(document["prior"]),
            iterations=int(document["iterations"]),
            converged=bool(document["converged"]),
            gain=_float(document["gain"]),
            identified=bool(document["identified"]),
            starts=tuple(map(float, document["starts"])),
            impossible=int(document["impossible"]),
            warnings=tuple(document["warnings"]),
            origin=str(document["origin"]),
            components={name: np.array(one, np.int64) for name, one in document["components"].items()},
        )

    def __repr__(self) -> str:
        size = f"{len(self.items):,} items at {len(self.positions):,} positions"
        return f"<ClickModel {self.model}: {size}, log-likelihood {self.log_likelihood:,.1f}>"


def _columns(estimates: Estimates) -> dict[str, list[Any]]:
    parts = {"value": estimates.values, **estimates.spread._asdict()}
    return {name: [_number(value) for value in part.tolist()] for name, part in parts.items()}


def _estimates(columns: Mapping[str, Any]) -> Estimates:
    values, *spread = (np.array(columns[name], np.float64) for name in ("value", *Spread._fields))
    return Estimates(values, Spread(*spread))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)
