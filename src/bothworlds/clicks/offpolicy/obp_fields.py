"""The field names of open bandit pipeline, without depending on it.

Saito et al.: Open Bandit Dataset and Pipeline, NeurIPS 2021 Datasets and Benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..log import Log, read
from .impressions import opened

__all__ = ["from_obp", "to_obp"]


def to_obp(log: Any) -> dict[str, Any]:
    """The impressions of a log under the names of open bandit pipeline: its ``bandit_feedback``.

    Actions and positions are numbered from 0; ``action_names`` and ``position_names`` say what they were called. Rows
    without a propensity cannot be expressed and are an error.

    >>> feedback = to_obp({"item": ["a", "b"], "position": [1, 1], "click": [1, 0], "propensity": [0.5, 0.5]})
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


def from_obp(feedback: Mapping[str, Any], *, names: Sequence[str] | None = None) -> Log:
    """A log from a ``bandit_feedback`` of open bandit pipeline; contexts are not used.

    Items are called ``names``, or as ``action_names`` says, or by their numbers.
    """
    if not isinstance(feedback, Mapping):
        raise ValueError(f"bandit feedback must be a dictionary of fields; got {type(feedback).__name__}")
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
    if propensity is not None and not _are_chances(np.asarray(propensity)):
        raise ValueError("pscore must be probabilities above 0")
    columns = {"item": labels[action], "position": places, "click": reward.astype(np.int64), "propensity": propensity}
    return read({name: np.asarray(column) for name, column in columns.items() if column is not None}, "tidy")


def _are_chances(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iuf" and bool(((values > 0.0) & (values <= 1.0)).all())
