"""Conversion of logs to and from the fields of Open Bandit Pipeline, which need not be installed.

Saito et al.: Open Bandit Dataset and Pipeline, NeurIPS 2021 Datasets and Benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..log import Log, read


def to_obp(log: Any) -> dict[str, Any]:
    """Return the impressions of a log as the ``bandit_feedback`` of Open Bandit Pipeline.

    Actions and positions are numbered from 0; ``action_names`` and ``position_names`` hold their names in the log.
    Raises ValueError for rows without a propensity.

    >>> feedback = to_obp({"item": ["a", "b"], "position": [1, 1], "click": [1, 0], "propensity": [0.5, 0.5]})
    >>> feedback["action"].tolist(), feedback["position"].tolist(), feedback["reward"].tolist()
    ([0, 1], [0, 0], [1, 0])
    """
    opened = log if isinstance(log, Log) else read(log)
    if opened.number != "1":
        raise ValueError(f"{opened.origin} has no row for every result")
    propensity = "propensity" if opened.has_propensities else "NULL::DOUBLE"
    rows = opened.rows(f"item, position, click, {propensity} AS propensity")
    if without := rows["propensity"].null_count:
        raise ValueError(f"{without:,} impressions have no propensity, which open bandit pipeline needs")
    names, places = np.array(opened.items), np.array(opened.positions)
    code = {name: k for k, name in enumerate(opened.items)}
    items = rows["item"].combine_chunks().dictionary_encode()
    codes = np.array([code[name] for name in items.dictionary.to_pylist()], dtype=np.int64)
    return {
        "n_rounds": len(rows),
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
    """Return a log of a ``bandit_feedback`` of Open Bandit Pipeline; contexts are ignored.

    Items are named by ``names``, else by the field ``action_names``, else by their numbers.
    """
    if not isinstance(feedback, Mapping):
        raise ValueError(f"bandit feedback must be a dictionary of fields; got {type(feedback).__name__}")
    missing = {"action", "reward"} - feedback.keys()
    if missing:
        raise ValueError(
            f"bandit feedback must have the fields action and reward; {', '.join(sorted(missing))} is missing"
        )
    action = np.asarray(feedback["action"])
    if action.ndim != 1 or action.dtype.kind not in "iu" or np.shape(feedback["reward"]) != action.shape:
        raise ValueError("action must be a list of whole numbers, and reward must have the same length")
    given = feedback.get("action_names") if names is None else names
    labels = np.arange(action.max(initial=-1) + 1).astype(str) if given is None else np.asarray(given).astype(str)
    if action.size and (action.min() < 0 or action.max() >= len(labels)):
        raise ValueError(f"action must be numbers from 0 to {len(labels) - 1}, the last one with a name")
    columns = {"item": labels[action], "click": np.asarray(feedback["reward"]), "position": feedback.get("position")}
    columns["propensity"] = feedback.get("pscore")
    columns["position"] = np.zeros(action.size, np.int64) if columns["position"] is None else columns["position"]
    return read({name: np.asarray(column) for name, column in columns.items() if column is not None}, "tidy")
