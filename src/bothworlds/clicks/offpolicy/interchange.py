"""Logs in memory, and the field names of open bandit pipeline, without depending on it.

Saito et al.: Open Bandit Dataset and Pipeline, NeurIPS 2021 Datasets and Benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...kernels import Floats
from ..checking import REASONS
from .impressions import opened

__all__ = ["MemoryLog", "from_obp", "to_obp"]


@dataclass(frozen=True, eq=False)
class MemoryLog:
    """A log that is in memory already: columns of one length, an impression each, to be judged by or fitted to.

    ``event`` says which impressions were on one page; None where that is not known. A propensity may be missing (None).
    """

    item: ArrayLike
    position: ArrayLike
    click: ArrayLike
    propensity: ArrayLike | None = None
    event: ArrayLike | None = None
    query: ArrayLike | None = None
    timestamp: ArrayLike | None = None
    layout: str = "memory"

    def __post_init__(self) -> None:
        names = ("item", "position", "click", "propensity", "event", "query", "timestamp")
        columns = {name: np.asarray(getattr(self, name)) for name in names if getattr(self, name) is not None}
        shapes = {name: column.shape for name, column in columns.items()}
        if len({columns["item"].shape[:1], *shapes.values()}) > 1:
            raise ValueError(f"the columns of a log must be lists as long as each other; their shapes are {shapes}")
        item = columns["item"].astype(object)
        _check("item", item, ~(_missing(item) | (item == "")))
        position, click = (_as_numbers(name, columns[name]) for name in ("position", "click"))
        whole = (position >= 0) & (position < 2**31) & (position == np.floor(position))
        _check("position", columns["position"], whole)
        _check("click", columns["click"], np.isin(click, (0.0, 1.0)))
        if "propensity" in columns:
            given, raw = _as_numbers("propensity", columns["propensity"]), columns["propensity"].astype(object)
            _check("propensity", raw, _none(raw) | ((given > 0.0) & (given <= 1.0)))

    @property
    def has_propensities(self) -> bool:
        return self.propensity is not None

    @property
    def has_pages(self) -> bool:
        return self.event is not None

    def rows(self, connection: Any) -> Any:
        """The impressions as a DuckDB relation: event, query, item, position, click, propensity, timestamp."""
        import pyarrow

        n = np.shape(self.item)[0]
        columns = {name: getattr(self, name) for name in ("event", "query", "item", "position", "click", "propensity")}
        stamps = pyarrow.array(self.timestamp) if self.timestamp is not None else pyarrow.nulls(n, pyarrow.int64())
        filled = {
            name: pyarrow.array(np.asarray(column)) if column is not None else pyarrow.nulls(n, pyarrow.string())
            for name, column in columns.items()
        }
        table = pyarrow.table({**filled, "timestamp": stamps})
        return connection.from_arrow(table).project(
            "event::VARCHAR AS event, query::VARCHAR AS query, item::VARCHAR AS item, position::INTEGER AS position, "
            "click::TINYINT AS click, propensity::DOUBLE AS propensity, timestamp"
        )


def to_obp(log: Any) -> dict[str, Any]:
    """The impressions of a log under the names of open bandit pipeline: its ``bandit_feedback``.

    Actions and positions are numbered from 0; ``action_names`` and ``position_names`` say what they were called. Rows
    without a propensity cannot be expressed and are an error.

    >>> log = MemoryLog(item=["a", "b"], position=[1, 1], click=[1, 0], propensity=[0.5, 0.5])
    >>> feedback = to_obp(log)
    >>> feedback["action"].tolist(), feedback["position"].tolist(), feedback["reward"].tolist()
    ([0, 1], [0, 0], [1, 0])
    """
    with opened(log) as impressions:
        if impressions.weighable < impressions.total:
            without = impressions.total - impressions.weighable
            raise ValueError(f"{without:,} impressions have no propensity, which open bandit pipeline needs")
        rows = impressions.connection.sql(
            "SELECT item, position, click, propensity FROM impressions ORDER BY ordinal"
        ).to_arrow_table()
        names, places = np.array(impressions.items), np.array(impressions.positions)
        code = {name: k for k, name in enumerate(impressions.items)}
        items = rows["item"].combine_chunks().dictionary_encode()
        codes = np.array([code[name] for name in items.dictionary.to_pylist()], dtype=np.int64)
        return {
            "n_rounds": impressions.total,
            "n_actions": len(names),
            "action": codes[items.indices.to_numpy()],
            "position": np.searchsorted(places, rows["position"].to_numpy()),
            "reward": rows["click"].to_numpy().astype(np.int64),
            "pscore": rows["propensity"].to_numpy(),
            "context": None,
            "action_context": None,
            "action_names": names,
            "position_names": places,
        }


def _as_numbers(name: str, column: Any) -> Floats:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error


def _none(column: Any) -> Any:
    return (column == np.array(None)).astype(bool)


def _missing(column: Any) -> Any:
    """None, or what is not equal to itself, as missing values are in tables of numbers."""
    return _none(column) | (column != column).astype(bool)


def _check(name: str, column: Any, good: Any) -> None:
    """Refuse a column with the words for files."""
    if not good.all():
        row = int(np.argmin(good))
        said = next(words for role, words in REASONS.values() if role == name)
        raise ValueError(f"row {row} of the log: {name} {said}; got {column.tolist()[row]!r}")


def from_obp(feedback: Mapping[str, Any], *, names: Sequence[str] | None = None) -> MemoryLog:
    """A log from a ``bandit_feedback`` of open bandit pipeline; contexts are not used.

    Items are called ``names``, or as ``action_names`` says, or by their numbers.
    """
    missing = {"action", "reward"} - feedback.keys()
    if missing:
        raise ValueError(
            f"bandit feedback must have the fields action and reward; {', '.join(sorted(missing))} is missing"
        )
    action, reward = np.asarray(feedback["action"]), np.asarray(feedback["reward"])
    if action.ndim != 1 or action.dtype.kind not in "iu" or reward.shape != action.shape:
        raise ValueError("action must be a list of whole numbers, and reward as long")
    if not np.isin(reward, (0, 1)).all():
        raise ValueError("reward must be 0 or 1, for no click or a click")
    called = feedback.get("action_names") if names is None else names
    labels = np.arange(action.max(initial=-1) + 1).astype(str) if called is None else np.asarray(called).astype(str)
    if action.size and (action.min() < 0 or action.max() >= len(labels)):
        raise ValueError(f"action must be numbers from 0 to {len(labels) - 1}, the last that has a name")
    position = feedback.get("position")
    places = np.zeros(action.size, np.int64) if position is None else np.asarray(position)
    propensity = feedback.get("pscore")
    if propensity is not None and not ((np.asarray(propensity) > 0.0) & (np.asarray(propensity) <= 1.0)).all():
        raise ValueError("pscore must be probabilities above 0")
    return MemoryLog(labels[action], places, reward.astype(np.int64), propensity)
