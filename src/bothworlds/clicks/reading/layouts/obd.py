"""The Open Bandit Dataset: one row per impression, with the propensity; result pages cannot be rebuilt."""

from __future__ import annotations

from typing import Any

from ..file_format import needs
from .base import Batch, TableLayout, columns_of, timestamps

__all__ = ["OBD"]


def _table(batch: Batch) -> Any:
    columns = columns_of(batch)
    return needs("pyarrow").table(
        {
            "timestamp": timestamps(batch),
            "item_id": columns["item"],
            "position": columns["position"],
            "click": columns["click"],
            "propensity_score": columns["propensity"],
        }
    )


OBD = TableLayout(
    "obd",
    "Open Bandit Dataset: timestamp, item_id, position, click, propensity_score",
    roles={
        "timestamp": ("timestamp",),
        "item": ("item_id",),
        "position": ("position",),
        "click": ("click",),
        "propensity": ("propensity_score",),
    },
    required=("item", "position", "click", "propensity"),
    table=_table,
)
