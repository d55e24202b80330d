"""Fitted click models: their names, parameters and tables, the JSON file, predictions and the worlds they define."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...data_frames import html_table, to_frame
from ...kernels import Floats, Ints
from ...worlds import World
from ...worlds.fitted import from_document, models_in, read_document, write_document

if TYPE_CHECKING:
    from ..pages import Pages
    from .predict import Prediction

Z = 1.959964  # 95% of a normal distribution, two sides


class ModelName(NamedTuple):
    """A click model: its long name, and whether it needs whole pages, clicks being dependent."""

    title: str
    dependent: bool


MODELS = {
    "pbm": ModelName("position-based model", False),
    "ubm": ModelName("user browsing model", True),
    "cascade": ModelName("cascade model", True),
    "dcm": ModelName("dependent click model", True),
    "sdbn": ModelName("simplified dynamic Bayesian network", True),
    "dbn": ModelName("dynamic Bayesian network", True),
    "ccm": ModelName("click chain model", True),
    "trust": ModelName("affine position-based model", False),
    "rank-ctr": ModelName("click rate of positions", False),
    "item-ctr": ModelName("click rate of items", False),
}


def model_named(name: str) -> ModelName:
    """Return the click model with a name; raise ValueError if there is none.

    >>> model_named("ubm").title
    'user browsing model'
    """
    if name not in MODELS:
        raise ValueError(f"there is no click model {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]


class Estimates(NamedTuple):
    """The values of a parameter, with standard errors and limits of 95% intervals; NaN where they are not known."""

    value: Floats
    error: Floats
    low: Floats
    high: Floats

    def take(self, index: Any) -> Estimates:
        """Return some of the entries."""
        return Estimates(*(part[index] for part in self))


def without_intervals(value: Floats) -> Estimates:
    """Return values without standard errors."""
    return Estimates(value, *np.full((3, value.size), np.nan))


@dataclass(frozen=True, eq=False)
class ClickModel:
    """A fitted click model.

    ``item_parameters`` has, by name, an entry for every (query, item), aligned with ``items`` and ``queries``: where a
    curve is shared over queries, an item has an attraction for each query it was shown for. ``shared_parameters`` has
    those that belong to positions or to all, aligned with ``labels`` of the same name.

    Only parameters of one component can be compared: in ``components``, a number for every entry of ``items`` and every
    column of examination, -1 for those about which the clicks say nothing.
    """

    model: str  # a name of MODELS
    items: tuple[str, ...]
    queries: tuple[str, ...]  # "" if the log has no queries
    positions: tuple[int, ...]
    item_parameters: Mapping[str, Estimates]
    shared_parameters: Mapping[str, Estimates]
    labels: Mapping[str, tuple[str, ...]]
    item_counts: Ints  # (2, n) impressions and clicks
    log_likelihood: float  # of the log, without pseudo-counts
    pages: int | None
    prior: float
    method: str = "newton"
    iterations: int = 0
    converged: bool = True
    gain: float = 0.0  # what a further Newton step would gain, at most
    identified: bool = True
    starts: tuple[float, ...] = ()  # the objective that each start reached
    impossible: int = 0  # clicks of the log that are impossible in the model, each counted as one in a million
    warnings: tuple[str, ...] = ()
    origin: str = ""
    components: Mapping[str, Ints] = field(default_factory=dict)

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

    @property
    def examination(self) -> Floats:
        """The examination of positions, for ``pbm``, or of (position, last click above), for ``ubm``."""
        return self.shared("examination")

    def shared(self, name: str) -> Floats:
        """Return the values of a shared parameter, in the order of its labels."""
        return self._values(self.shared_parameters, name)

    def _values(self, parameters: Mapping[str, Estimates], name: str) -> Floats:
        if name not in parameters:
            known = [*self.item_parameters, *self.shared_parameters]
            raise ValueError(f"the model {self.model} has no {name}; it has {', '.join(known)}")
        return parameters[name].value

    def table(self) -> list[dict[str, Any]]:
        """Return one entry for every (query, item), in the order of ``items``.

        ``low`` and ``high`` are the limits of the first parameter of items, those of others have its name before them.
        """
        columns: dict[str, Any] = {"query": self.queries, "item": self.items}
        columns |= {"impressions": self.item_counts[0].tolist(), "clicks": self.item_counts[1].tolist()}
        for k, (name, one) in enumerate(self.item_parameters.items()):
            before = f"{name}_" if k else ""
            columns |= {name: one.value.tolist(), f"{before}standard_error": one.error.tolist()}
            columns |= {f"{before}low": one.low.tolist(), f"{before}high": one.high.tolist()}
        if self.components:
            columns["component"] = self.components["items"].tolist()
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def shared_table(self) -> list[dict[str, Any]]:
        """Return one entry for every shared parameter."""
        return [
            {"parameter": name, "of": label, "value": value, "standard_error": error, "low": low, "high": high}
            for name, one in self.shared_parameters.items()
            for label, value, error, low, high in zip(self.labels[name], *(part.tolist() for part in one))
        ]

    def to_frame(self, library: str | None = None) -> Any:
        """Return the entries of ``table`` as a data frame.

        ``library`` is "pandas", "polars" or "arrow"; by default the first of them that is installed. Raises ValueError
        for another name, and ImportError without the library.
        """
        return to_frame(_by_column(self.table()), library)

    def predict(self, pages: Pages) -> Prediction:
        """Return the probability of every click on some pages, given the clicks above it and without them."""
        from .predict import predict

        return predict(self, pages)

    def expected_reward(self, items: Sequence[str], query: str = "") -> float:
        """Return the expected number of clicks on a list of items, from the first position on.

        Items that the log does not have get the mean of each parameter. Raises ValueError for a list that is empty or
        has more items than there are positions.

        >>> from bothworlds.clicks import Counts, fit
        >>> model = fit(Counts.from_tables([[100, 100], [100, 100]], [[50, 20], [25, 10]], items=["tea", "milk"]))
        >>> round(model.expected_reward(["milk", "tea"]), 6)
        0.45
        """
        from ..pages import Pages

        if not 1 <= len(items) <= len(self.positions):
            raise ValueError(f"a list has 1 to {len(self.positions)} items; got {len(items)}")
        page = Pages.from_arrays([list(items)], np.zeros((1, len(items)), np.int64), query=[query])
        found = self.predict(Pages(**{**vars(page), "positions": self.positions[: len(items)]}))
        return float(found.marginal.sum())

    def world(self, query: str | None = None) -> World:
        """Return the world whose users follow the model, with the items of a query in the order of ``items``.

        Items whose parameters the log does not determine are left out. Raises ValueError for a model that is not
        identified, one that lacks a parameter that belongs to all items, and one of several queries if none is named.
        """
        return from_document(self.document(), query)

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
        """Write the model as JSON and return the path; the file is replaced as a whole or left unchanged.

        :func:`load_model` reads it, and ``bothworlds play --world`` plays in it.
        """
        return write_document(self.document(), path)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ClickModel:
        """Return the model of a document; what a file with parameters only does not say is unknown.

        Raises KeyError or TypeError if parameters are missing.
        """
        shared, items = document["shared_parameters"], tuple(document["item"])
        counts = [document.get(f"item_{name}", [1] * len(items)) for name in ("impressions", "clicks")]
        return cls(
            model=str(document["model"]),
            items=items,
            queries=tuple(document["query"]),
            positions=tuple(document["positions"]),
            item_parameters={name: _estimates(one) for name, one in document["item_parameters"].items()},
            shared_parameters={name: _estimates(one) for name, one in shared.items()},
            labels={name: tuple(one["of"]) for name, one in shared.items()},
            item_counts=np.array(counts, np.int64),
            log_likelihood=_float(document.get("log_likelihood")),
            pages=document.get("pages"),
            method=str(document.get("method", "")),
            prior=float(document.get("prior", 0.0)),
            iterations=int(document.get("iterations", 0)),
            converged=bool(document.get("converged", True)),
            gain=_float(document.get("gain")),
            identified=bool(document["identified"]),
            starts=tuple(map(float, document.get("starts", ()))),
            impossible=int(document.get("impossible", 0)),
            warnings=tuple(document.get("warnings", ())),
            origin=str(document.get("origin", "")),
            components={name: np.array(one, np.int64) for name, one in document.get("components", {}).items()},
        )

    def _repr_html_(self) -> str:
        """Tables of the first items and of the shared parameters, for notebooks."""
        items = html_table(repr(self), _by_column(self.table()), self.warnings)
        return items + html_table("shared parameters", _by_column(self.shared_table()))

    def __repr__(self) -> str:
        size = f"{len(self.items):,} items at {len(self.positions):,} positions"
        sure = "" if self.identified else ", not identified"
        return f"<ClickModel {self.model}: {size}, log-likelihood {self.log_likelihood:,.1f}{sure}>"


def load_model(path: str | Path) -> ClickModel | dict[str, ClickModel]:
    """Return the model in a file that ``save`` has written, or models by query.

    Models by query are written by ``bothworlds fit --per-query``, or have parameters only: ``{query: {"attr": ...,
    "exam": ...}}``. Raises ValueError if the file is not a fitted model, or has another version of the format.
    """
    document = read_document(path)
    try:
        models = models_in(document)
        if models is None:
            return ClickModel.from_document(document)
        return {query: ClickModel.from_document(one) for query, one in models.items()}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a fitted model: it has no usable {error}") from error


def save_models(models: Mapping[str, ClickModel], path: str | Path) -> Path:
    """Write models by query to one file and return the path; :func:`load_model` reads it."""
    return write_document({"models": {query: model.document() for query, model in models.items()}}, path)


def _by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _columns(estimates: Estimates) -> dict[str, list[Any]]:
    return {name: [_number(value) for value in part.tolist()] for name, part in estimates._asdict().items()}


def _estimates(columns: Mapping[str, Any]) -> Estimates:
    unknown = [None] * len(columns["value"])
    return Estimates(*(np.array(columns.get(name, unknown), np.float64) for name in Estimates._fields))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)
